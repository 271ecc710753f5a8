"""The circuits."""
