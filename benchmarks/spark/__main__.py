"""`python -m benchmarks.spark`."""

import typer

from benchmarks.spark.bench import main

if __name__ == "__main__":
    typer.run(main)
