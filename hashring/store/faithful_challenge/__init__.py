"""The faithful challenge, which is the article's own: its commands and its scripts."""
