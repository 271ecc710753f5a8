"""Programs and figures of single operations."""
