"""Replays, imports and exports: bounded copies that can be repeated safely."""
