"""The lease challenge, in both modes. Commands and scripts."""
