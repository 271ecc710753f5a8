"""Makers of the documents' tables, manual and diagrams, and of the development environment."""
