"""SQL sources made in memory."""

import io
import zipfile

from skep.db.schema.catalog import SqlSource


def sql_source(texts):
    """Return a source with these texts by path, such as `functions/greet.sql`."""
    archive = zipfile.ZipFile(io.BytesIO(), "w")
    for path, text in texts.items():
        archive.writestr(path, text)
    return SqlSource(zipfile.Path(archive))
