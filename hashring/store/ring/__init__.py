"""The ring: its nodes, their virtual nodes and its history. Commands and scripts."""
