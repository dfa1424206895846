"""Where the lake may lie: local directories, S3 at a server on loopback, and how addresses read."""

import os

import pytest
from moto.server import ThreadedMotoServer
from pyarrow import fs

from skep.spark.archive.compaction import CompactionPlan, compact_lake
from skep.spark.archive.storage import (
    InvalidWarehouse,
    Storage,
    is_local,
    storage_properties,
    warehouse_address,
)
from skep.spark.runtime.postgres import forget_connections
from skep.spark.runtime.tasks import run_here
from tests.spark.support.archives import Shop, payloads_of, run_tasks


@pytest.fixture(scope="module")
def s3_endpoint():
    server = ThreadedMotoServer("127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(s3_endpoint):
    """The description of a store with a new bucket in it."""
    text = (
        f"s3.endpoint={s3_endpoint},s3.region=us-east-1,s3.access-key-id=test,"
        "s3.secret-access-key=test"
    )
    place = s3_endpoint.removeprefix("http://")
    store = fs.S3FileSystem(
        endpoint_override=place, scheme="http", region="us-east-1", access_key="test",
        secret_key="test", allow_bucket_creation=True, allow_bucket_deletion=True,
    )  # fmt: skip
    store.create_dir("hive")
    yield text
    store.delete_dir("hive")


def test_an_archive_on_s3_is_written_read_compacted_and_cleaned(database_url, writer, bucket):
    shop = Shop(database_url, "s3://hive/lake", writer, storage=bucket)
    for number in range(3):
        shop.push_old(number)
    shop.read_all()

    def fail(step):
        if step == "added":
            raise RuntimeError(step)

    with pytest.raises(RuntimeError, match="added"):
        shop.archive(messages_per_task=1, on_step=fail)
    done = shop.archive(messages_per_task=1)
    shop.writer.push(3)

    assert (done.files, done.deleted) == (3, 3)
    assert shop.read(tier="all") == [0, 1, 2, 3]
    assert shop.left_over() == []
    with shop.lake() as lake:
        assert compact_lake(lake, CompactionPlan(), run_here).files_after == 1
        (file,) = lake.files()
        assert file.address.startswith("s3://hive/lake/")
    assert shop.read(tier="all") == [0, 1, 2, 3]
    reader = shop.reader(tier="all")
    tasks = reader.partitions()
    Storage(storage_properties(bucket)).remove([file.address])
    with pytest.raises(Exception, match="run the query again"):
        payloads_of(run_tasks(reader, tasks))
    forget_connections()


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("/data/lake", "file:///data/lake"),
        ("/data/lake/", "file:///data/lake"),
        ("file:///data/lake/", "file:///data/lake"),
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("s3a://bucket", "s3a://bucket"),
        ("gs://bucket/x", "gs://bucket/x"),
        ("abfss://box@account/x", "abfss://box@account/x"),
        ("hdfs://namenode:8020/lake", "hdfs://namenode:8020/lake"),
        ("hdfs:///lake", "hdfs:///lake"),
        ("viewfs://cluster/lake", "viewfs://cluster/lake"),
    ],
)
def test_warehouses_are_directories_or_addresses(given, address):
    assert warehouse_address(given) == address


def test_a_relative_directory_becomes_an_absolute_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert warehouse_address("lake") == f"file://{tmp_path}/lake"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("", "not the address of a warehouse"),
        ("s3://bucket/?x=1", "not the address of a warehouse"),
        ("http://host/x", "a warehouse cannot be at http://"),
        ("s3:///path", "names no bucket"),
    ],
)
def test_other_addresses_are_refused(given, message):
    with pytest.raises(InvalidWarehouse, match=message):
        warehouse_address(given)


def test_an_hdfs_address_is_taken_apart_into_server_and_path(monkeypatch):
    asked = []

    class Hadoop:
        @staticmethod
        def from_uri(uri):
            asked.append(uri)

    monkeypatch.setattr(fs, "HadoopFileSystem", Hadoop)

    _, path = Storage({}).place("hdfs://namenode:8020/lake/messages/data/a.parquet")

    assert (asked, path) == (["hdfs://namenode:8020"], "/lake/messages/data/a.parquet")


def test_the_description_of_a_storage_is_names_and_values():
    text = " s3.endpoint = http://h:1 ,s3.secret-access-key=a=b,, "

    assert storage_properties(text) == {
        "s3.endpoint": "http://h:1",
        "s3.secret-access-key": "a=b",
    }
    assert storage_properties(None) == {}
    with pytest.raises(InvalidWarehouse, match="name=value") as refusal:
        storage_properties("s3cr3t")
    assert "s3cr3t" not in str(refusal.value)


def test_a_local_file_has_its_name_only_when_it_is_complete(tmp_path):
    storage, address = Storage({}), f"file://{tmp_path}/a/b.bin"

    def fail():
        with storage.create(address) as stream:
            stream.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert not (tmp_path / "a/b.bin").exists()
    with storage.create(address) as stream:
        stream.write(b"whole")

    assert (tmp_path / "a/b.bin").read_bytes() == b"whole"
    assert storage.list(f"file://{tmp_path}/a") == [address]
    assert storage.list(f"file://{tmp_path}/none") == []


def test_local_files_are_forced_to_the_disk_and_others_are_not(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"x")
    forced, force = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: forced.append(handle) or force(handle))

    Storage({}).force([f"file://{tmp_path}/a", "s3://bucket/b"])

    assert len(forced) == 2  # the file and its directory
    assert is_local("/a")
    assert not is_local("s3://a")


def test_removing_what_is_gone_does_not_matter(tmp_path):
    Storage({}).remove([f"file://{tmp_path}/nothing"])
