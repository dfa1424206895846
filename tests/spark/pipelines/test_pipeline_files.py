"""Definitions of pipelines: what is read, what is refused, and in which words."""

import json

import msgspec
import pytest

from skep.spark.pipelines.files import load_pipeline, parse_pipeline
from skep.spark.pipelines.frames import source_options, targets_of
from skep.spark.pipelines.pipeline import (
    Every,
    InvalidPipeline,
    Pipeline,
    Sink,
    Source,
    definition_hash,
    spelled_definition,
)
from tests.spark.support.pipelines import COUNTS


def test_a_definition_is_read_with_its_defaults():
    pipeline = parse_pipeline(COUNTS)

    assert pipeline.name == "counts"
    assert pipeline.sources["orders"].watermark == "1s"
    assert pipeline.window.by == ["partition"]
    assert pipeline.trigger == "availableNow"
    short = parse_pipeline("name: x\nsources: {a: {queue: a}}\nsink: {queue: b}\n")
    assert short.trigger == Every(every="1s")
    assert short.sources["a"].event_time == "created_at"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("watermark: 1s", "watermark: soon", "line 8, sources.orders.watermark: 'soon' is no len"),
        ("watermark: 1s", "watermark: 1", "line 8, sources.orders.watermark: Expected `str"),
        ("    watermark: 1s\n", "", "line 8, window: a window closes when the watermark"),
        ("watermark:", "watermrk:", r"line 4, sources.orders: .*did you mean watermark\?"),
        ("queue: orders", "queue: []", "line 5, sources.orders.queue: a list names queues"),
        ("queue: orders", "schema: x STRING", "line 6: schema is given twice"),
        ("    queue: orders\n", "", "line 4, sources.orders: say which queues to read"),
        ("sink: {queue: counts}\n", "", "line 2: say where results go, by sink or by outputs"),
        ("queue: orders", "queue: orders\n    pattern: x", "sources.orders: say which queues"),
        ("queue: orders", "queue: orders\n    options: {urll: 1}", "did you mean url"),
        ("queue: orders", "queue: orders\n    options: {Url: x}", "Url is not for pipelines"),
        ("  orders:", "  my-orders:", "sources.my-orders: the name of a source is used in SQL"),
        ("kind: tumbling", "kind: hopping", "line 10, window.kind: Invalid enum value 'hopping'"),
        ("size: 10s", "gap: 10s", "window.size: a tumbling window needs it"),
        ("size: 10s", "size: 10s\n  gap: 1s", "line 12, window.gap: a tumbling window has none"),
        ("tumbling", "sliding", "window.slide: a sliding window needs it"),
        ("kind: tumbling", "kind: sliding\n  slide: 20s", "window.slide: larger than size"),
        (
            "kind: tumbling\n  size",
            "by: []\n  kind: session\n  gap",
            "window.by: a session window needs a key",
        ),
        ("{count: count(*), total: sum(payload.n)}", "{}", "window.aggregate: name at least one"),
        ("sink: {queue: counts}", "sink: {}", "line 13, sink: say where results go"),
        ("sink: {queue: counts}", "sink: {table: t, partition: p}", "are of a queue"),
        ("queue: counts", "queue: c, partitionBy: [x]", "sink.partitionBy: is of a table"),
        ("queue: counts", "table: s3a://b/t", "sink.table: 's3a://b/t' is no name of a table"),
        ("queue: counts", "queue: c, options: {onErr: x}", "did you mean onError"),
        ("availableNow", "never", "line 14, trigger: Invalid enum value 'never'"),
        ("availableNow", "{every: 0s}", "trigger.every: '0s' is no length of time"),
        ("name: counts", "nam: counts", "line 2.*did you mean name"),
        ("name: counts", "name: ''", "line 2, name: must have 1 to 100 characters"),
        ("name: counts", "nonsense: [", "line 4: expected"),
        ("trigger:", "sql: select 1\nfunction: a:b\ntrigger:", "function: give sql or function"),
        ("  orders:", "  other: {queue: o}\n  orders:", "sources: with several sources say by sql"),
    ],
)
def test_a_mistake_is_told_with_its_line_and_what_to_do(old, new, said):
    assert old in COUNTS
    with pytest.raises(InvalidPipeline) as refused:
        parse_pipeline(COUNTS.replace(old, new, 1), "counts.yaml")

    assert refused.value.message.startswith("counts.yaml, line ")
    assert refused.match(said)


SEVERAL = """
name: shop
sources:
  orders: {queue: orders, schema: n BIGINT, watermark: 1s}
outputs:
  large: {sql: select payload.n from orders where payload.n > 9, sink: {table: large}}
  counts:
    window: {kind: tumbling, size: 10s}
    sink: {queue: counts, table: counts}
"""


def test_several_outputs_are_queries_of_their_own():
    pipeline = parse_pipeline(SEVERAL)

    keys = [target.key for target in targets_of(pipeline)]
    assert keys == ["large.table", "counts.queue", "counts.table"]
    assert [target.key for target in targets_of(parse_pipeline(COUNTS))] == ["queue"]
    assert definition_hash(pipeline) != definition_hash(
        parse_pipeline(SEVERAL.replace("n > 9", "n > 8"))
    )
    assert msgspec.json.decode(spelled_definition(pipeline), type=Pipeline) == pipeline


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("sink: {queue: counts", "sinc: {queue: counts", "line 7, outputs.counts: .*mean sink"),
        ("table: counts", "tabel: counts", r"line 9, outputs.counts.sink: .*mean table"),
        ("table: counts", "table: large", "table large is that of output large, and a table is"),
        ("size: 10s", "size: soon", "line 8, outputs.counts.window.size: 'soon' is no length"),
        ("  counts:", "  my-counts:", "outputs.my-counts: write 1 to 50 letters, digits"),
        ("outputs:", "sql: select 1\noutputs:", "sql: with outputs it belongs to one of them"),
    ],
)
def test_a_mistake_in_an_output_is_told_with_its_place(old, new, said):
    assert old in SEVERAL
    with pytest.raises(InvalidPipeline, match=said):
        parse_pipeline(SEVERAL.replace(old, new, 1), "shop.yaml")


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "just words"])
def test_what_is_no_mapping_is_no_pipeline(text):
    with pytest.raises(InvalidPipeline, match="is a mapping with name, sources and sink"):
        parse_pipeline(text)


def test_the_hash_stays_when_only_the_manner_of_running_changes():
    before = definition_hash(parse_pipeline(COUNTS))

    for old, new in [
        ("availableNow", "once"),
        ("queue: orders", "queue: orders\n    options: {maxMessagesPerTrigger: 10}"),
        ("name: counts", "name: counts\ndescription: words"),
        ("queue: counts", "queue: counts, partition: partition"),
    ]:
        changed = COUNTS.replace(old, new, 1)
        assert changed != COUNTS
        assert definition_hash(parse_pipeline(changed)) == before


def test_the_hash_changes_with_what_is_computed():
    texts = [COUNTS] + [
        COUNTS.replace(old, new, 1)
        for old, new in [
            ("watermark: 1s", "watermark: 2s"),
            ("size: 10s", "size: 20s"),
            ("at BIGINT, n BIGINT", "at BIGINT, n INT"),
            ("sum(payload.n)", "max(payload.n)"),
            ("queue: counts", "queue: other"),
            ("trigger:", "sql: select * from orders\ntrigger:"),
        ]
    ]

    assert len({definition_hash(parse_pipeline(text)) for text in texts}) == len(texts)


def test_blanks_and_comments_of_sql_count_only_in_texts():
    def digest(sql):
        text = COUNTS.replace("trigger:", f"sql: {json.dumps(sql)}\ntrigger:")
        return definition_hash(parse_pipeline(text))

    plain = digest("select 'a  -- b' from orders")

    for same in (
        " select 'a  -- b'\n\tfrom orders ",
        "select /* it's */ 'a  -- b' -- what's there\nfrom orders",
    ):
        assert digest(same) == plain
    for other in (
        "select 'a -- b' from orders",
        "select 'a  -- c' from orders",
        "select /*+ broadcast(orders) */ 'a  -- b' from orders",
    ):
        assert digest(other) != plain


def test_secrets_are_not_put_on_record():
    pipeline = Pipeline(
        name="x",
        sources={"a": Source(queue="a", options={"encryptionKeys": "k1", "tier": "all"})},
        sink=Sink(queue="b", options={"encryptionKeys": "k2"}),
        spark={"spark.hadoop.fs.s3a.secret.key": "k3"},
        function=print,
    )

    shown = spelled_definition(pipeline).decode()

    assert not any(secret in shown for secret in ("k1", "k2", "k3"))
    assert json.loads(shown)["sources"]["a"]["options"]["tier"] == "all"
    assert json.loads(shown)["function"] == "builtins:print"


def test_sources_become_options_of_the_data_source():
    several = source_options(Source(queue=["a", "b"]), "postgresql://h/d", "r")
    assert several == {"url": "postgresql://h/d", "subscribe": "a,b", "consumerGroup": "r"}
    matched = source_options(Source(pattern="a.*", schema="n INT"), "u", "r")
    assert (matched["subscribePattern"], matched["payloadSchema"]) == ("a.*", "n INT")
    limited = source_options(Source(queue="a", options={"failOnDataLoss": False}), "u", "r")
    assert limited["failOnDataLoss"] == "false"


def test_a_function_is_found_beside_the_file_that_names_it(tmp_path):
    (tmp_path / "steps.py").write_text("def keep(orders):\n    return orders\n")
    path = tmp_path / "p.yaml"
    text = "name: x\nsources: {orders: {queue: a}}\nfunction: steps.py:%s\nsink: {queue: b}\n"
    path.write_text(text % "keep")

    pipeline = load_pipeline(str(path))

    assert pipeline.name == "x"
    assert pipeline.function(orders=1) == 1
    path.write_text(text % "missing")
    with pytest.raises(InvalidPipeline, match=r"steps\.py has no missing"):
        load_pipeline(str(path))


@pytest.mark.parametrize(
    ("content", "place", "said"),
    [
        (None, "p.yaml", "cannot read"),
        (None, "p.py", "there is no file"),
        ("x = 1", "p.py", "has no pipeline"),
        ("pipeline = 1", "p.py", "is no Pipeline"),
        ("1/0", "p.py", "fails: ZeroDivisionError"),
    ],
)
def test_files_without_a_pipeline_are_refused(tmp_path, content, place, said):
    if content is not None:
        (tmp_path / place).write_text(content)

    with pytest.raises(InvalidPipeline, match=said):
        load_pipeline(str(tmp_path / place))


def test_modules_without_a_pipeline_are_refused():
    with pytest.raises(InvalidPipeline, match="cannot import no_such_module"):
        load_pipeline("no_such_module:pipeline")
    with pytest.raises(InvalidPipeline, match="json:dumps fails"):
        load_pipeline("json:dumps")


def test_a_pipeline_in_python_is_checked_like_one_in_a_file(tmp_path):
    path = tmp_path / "p.py"
    path.write_text(
        "from skep.spark.pipelines.pipeline import Pipeline, Sink, Source\n"
        "pipeline = Pipeline(name='x', sources={'a': Source()}, sink=Sink(queue='b'))\n"
    )

    with pytest.raises(InvalidPipeline, match=r"sources\.a: say which queues to read"):
        load_pipeline(str(path))


def test_definitions_survive_the_way_through_json():
    pipeline = parse_pipeline(COUNTS)

    assert msgspec.json.decode(spelled_definition(pipeline), type=Pipeline) == pipeline
