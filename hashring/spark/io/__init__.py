"""What jobs read and write: files and tables, whole or not at all."""
