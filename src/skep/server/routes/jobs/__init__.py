"""Chains, jobs, schedules, and bulk actions on everything that matches a filter."""
