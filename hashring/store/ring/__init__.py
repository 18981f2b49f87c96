"""The ring: its nodes, their virtual nodes and its history. Commands, scripts and twins."""
