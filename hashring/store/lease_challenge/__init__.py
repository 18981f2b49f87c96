"""The lease challenge, in both modes. Commands, scripts and twins."""
