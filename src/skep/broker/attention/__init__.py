"""What needs attention: everything that is stuck, failing or about to be, worst first.

`judge` decides, pure; `read` gathers the facts in bounded reads, shared by all who ask.
"""
