"""Segments to rows: Arrow in, Arrow out, without parsing payloads."""
