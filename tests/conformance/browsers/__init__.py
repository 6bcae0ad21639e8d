"""Checks of the browser gateway, by subject."""
