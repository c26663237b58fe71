"""Secrets stand in every setting that can hold one; nothing that a deployment says shows any of them."""

from __future__ import annotations

import io
import logging
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, urlsplit

import dagster as dg
import pyarrow as pa
import pytest
from click.testing import CliRunner
from dagster._serdes import serialize_value
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy.engine import make_url

import nova_assets as nova
from nova_assets.catalog.database import transactions
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.cli.main import COMMANDS, cli
from nova_assets.dagster_bridge import build_definitions, resources
from nova_assets.masking import MASK, mask
from nova_assets.service.assembly import build_server, build_service
from nova_assets.service.http.access_log import configure_json_logging
from nova_assets.service.http.config import ServiceConfig
from nova_assets.settings import load_settings
from nova_assets.store.store import Store
from nova_assets.testing import World
from nova_assets_tests import patient
from nova_assets_tests.stub_engine import StubEngine

pytestmark = pytest.mark.slow

PLANTED = [f"s3cr3t{n}x" for n in range(12)]
LEAK = re.compile(r"s3cr3t|%733cr3t|s3cr%33t", re.IGNORECASE)
ENCODED = PLANTED[2].replace("s", "%73", 1)

STOCK = nova.Channel("stock", merge=nova.Upsert(key="sku"), schema="sku bigint, name string")
COPY = nova.Channel("copy", merge=nova.Upsert(key="sku"), schema="sku bigint, name string")


@nova.task(consumes=nova.new(STOCK), produces=nova.delta(COPY))
def connect_somewhere(stock: object) -> object:
    address = os.environ["NOVA_CATALOG"]
    try:
        raise RuntimeError(f"connecting to {address} as {PLANTED[0]}")
    except RuntimeError as error:
        raise ValueError(f"no answer of {address}") from error


PROJECT = nova.Project(bindings=[nova.bind(nova.Workflowette("copies", [connect_somewhere]))])


def planted_catalog(url: str) -> str:
    """The URL with a password and secret parameters, which a server that trusts everybody does not look at."""
    place = make_url(url).set(password=PLANTED[0]).render_as_string(hide_password=False)
    mark = "&" if "?" in place else "?"
    return f"{place}{mark}password={PLANTED[1]}&pass%77ord={ENCODED}&sslpassword={PLANTED[3]}"


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A secret in each setting. Nothing answers at any of these addresses."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(transactions, "FIRST_CONTACT_SECONDS", 0.2)
    for name, value in {
        "NOVA_PROJECT": "nova_assets_tests.test_secrets:PROJECT",
        "NOVA_CATALOG": planted_catalog("postgresql://ann@127.0.0.1:9/nova"),
        "NOVA_WAREHOUSE": str(tmp_path / "wh"),
        "NOVA_SERVICE": f"http://ann:{PLANTED[4]}@127.0.0.1:9/?sig={PLANTED[5]}&api_key={PLANTED[6]}",
        "NOVA_SERVICE_TOKEN": f"nova_0123456789abcdef_{PLANTED[7] * 4}",
        "NOVA_SPARK": f"sc://127.0.0.1:9/nothing/;token={PLANTED[8]}",  # refused at once, by an error that shows it
        "NOVA_SPARK_CONFIG": f"spark.hadoop.fs.s3a.secret.key={PLANTED[9]};"
        f"spark.driver.extraJavaOptions=-Djavax.net.ssl.trustStorePassword={PLANTED[9]}",
        "NOVA_DAGSTER_URL": f"http://ann:{PLANTED[10]}@127.0.0.1:9",
        "AWS_SECRET_ACCESS_KEY": PLANTED[11],
        "NOVA_DEBUG": "1",
    }.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def said_by(*arguments: str) -> str:
    """All that a command prints."""
    done = CliRunner().invoke(cli, [*arguments], prog_name="nova")
    raised = "" if done.exception is None else "".join(traceback.format_exception(done.exception))
    return f"nova {' '.join(arguments)}\n{done.output}\n{raised}"


ARGUMENTS = {
    "run": ["copies"],
    "plan": ["copies"],
    "insert": ["stock", "rows.jsonl"],
    "token": ["list"],
    "spark": ["status"],
    "show": ["copy"],
    "backfill": ["copy", "--all"],
    "restore": ["stock", "--at", "1"],
    "drop": ["stock", "--expired"],
    "unpublish": ["stock"],
    "describe": ["binding", "copies"],
    "pause": ["binding", "copies"],
    "resume": ["binding", "copies"],
    "remove": ["channel", "stock", "--dry-run"],
    "external": ["check"],
}
WITHOUT = {
    "notify",
    "channels",
    "init",
    "cursors",
    "tick",
    "check",
    "doctor",
    "backfills",
    "refresh",
    "workflowettes",
    "triggers",
}


def every_command() -> Iterator[list[str]]:
    for name in COMMANDS:
        if name != "serve":
            yield [name, *ARGUMENTS.get(name, [] if name in WITHOUT else ["stock"])]
    yield ["doctor", "--repair", "--dry-run"]
    yield ["insert", "stock", "rows.jsonl", "--launch"]


def assert_masked(text: str) -> None:
    found = [line for line in text.splitlines() if LEAK.search(line)]
    assert not found, "\n".join(found[:10])


@pytest.mark.long
@pytest.mark.parametrize("answering", [False, True])
def test_no_command_and_no_log_prints_a_secret(
    planted: Path, answering: bool, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    (planted / "rows.jsonl").write_text('{"sku": 1, "name": "tea"}\n')
    if answering:
        url = planted_catalog(request.getfixturevalue("postgres_catalog_url"))
        request.getfixturevalue("monkeypatch").setenv("NOVA_CATALOG", url)
        settings = load_settings()
        with Store(settings, PROJECT, open_catalog(settings.catalog), StubEngine(settings.warehouse)) as store:
            store.register(PROJECT)
            store.insert("stock", [{"sku": 1, "name": "tea"}])
    commands = list(every_command())
    said = [said_by(*command, *["--json"][: n % 2]) for n, command in enumerate([*commands, ["doctor"], ["channels"]])]
    assert_masked("\n".join([*said, caplog.text]))
    doctor = "".join(s for s in said if s.startswith("nova doctor"))
    assert f"ann:{MASK}@127.0.0.1" in doctor and f"password={MASK}" in doctor and f"sslpassword={MASK}" in doctor


@pytest.mark.parametrize(
    "what",
    [
        {"catalog": f"postgresql://ann:{PLANTED[0]}@127.0.0.1:{PLANTED[1]}/nova"},
        {"catalog": f"postgresql://ann:{PLANTED[0]}@127.0.0.1:9/nova?password={PLANTED[1]}&sslmode=none"},
        {"catalog": f"postgresql://ann@127.0.0.1:9/nova?nothing={PLANTED[1]}&sslpassword={PLANTED[1]}"},
        {"catalog": f"oracle://ann:{PLANTED[0]}@127.0.0.1:9/nova"},
        {"service": f"ftp://ann:{PLANTED[0]}@127.0.0.1"},
        {"service": f"http://ann:{PLANTED[0]}@127.0.0.1:none"},
        {"spark": f"spark://127.0.0.1:7077?token={PLANTED[0]}"},
        {"warehouse": f"ftp://ann:{PLANTED[0]}@127.0.0.1/x"},
        {"warehouse": f"s3://KEY:{PLANTED[0]}@bucket/x"},
    ],
)
def test_no_error_shows_a_secret_nor_do_its_causes(tmp_path: Path, what: dict[str, str]) -> None:
    arguments = {"catalog": f"sqlite:///{tmp_path}/c.db", "warehouse": str(tmp_path / "wh"), **what}
    with suppress(nova.NovaError):
        try:
            with nova.open(**arguments) as store:  # type: ignore[arg-type]
                assert_masked(repr(store.settings))
                store.register(STOCK)
                store.insert("stock", [{"sku": 1, "name": "tea"}])
        except Exception as error:
            chain = "".join(traceback.format_exception(error))
            assert_masked("\n".join(line for line in chain.splitlines() if not line.startswith("    ")))
            assert_masked(repr(vars(error)))
            raise


def test_a_service_neither_tells_nor_logs_a_secret(
    planted: Path, postgres_catalog_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOVA_CATALOG", planted_catalog(postgres_catalog_url))
    monkeypatch.setenv("NOVA_SERVICE", "embedded")
    loaded, log = load_settings(), io.StringIO()
    configure_json_logging(stream=log)
    said = []
    with nova.open(PROJECT, settings=loaded) as store:
        store.register(PROJECT)
        with build_server(build_service(store, ServiceConfig(port=0))).in_background() as url:
            for broken in (False, True):
                if broken:
                    store.catalog.database.write(lambda c: c.exec_driver_sql("DROP TABLE nova_channels CASCADE"))  # type: ignore[attr-defined]
                for path in ("/readyz", "/v1/channels", "/v1/channels/stock", "/v1/channels/stock/data", "/metrics"):
                    answer = patient.get(url + path)
                    said.append(f"{path} {answer.status_code} {answer.text} {answer.headers}")
                planted_url = f"http://ann:{PLANTED[4]}@127.0.0.1:{urlsplit(url).port}"
                with pytest.raises(nova.NovaError) as refused, nova.connect(planted_url, "nova_x") as there:
                    said.append(repr(there))
                    there.read("nothing").to_arrow()
                said.append("".join(traceback.format_exception(refused.value)))
    assert_masked("\n".join(said) + log.getvalue())
    assert "ERROR" in log.getvalue()


@pytest.mark.dagster
@pytest.mark.filterwarnings("ignore")
def test_no_event_of_dagster_holds_a_secret(
    planted: Path, postgres_catalog_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOVA_CATALOG", planted_catalog(postgres_catalog_url))
    monkeypatch.delenv("NOVA_SERVICE")
    loaded = load_settings()
    with Store(loaded, PROJECT, open_catalog(loaded.catalog), StubEngine(loaded.warehouse)) as store:
        resources._stores[loaded.catalog, loaded.warehouse, resources.register_project(PROJECT)] = store
        store.register(PROJECT)
        store.insert("stock", [{"sku": 1, "name": "tea"}])
        instance = dg.DagsterInstance.ephemeral()
        job = build_definitions(PROJECT).resolve_job_def("copies")
        ran = job.execute_in_process(instance=instance, raise_on_error=False)
        assert not ran.success
        events = [serialize_value(event) for event in instance.all_logs(ran.run_id)]
        kept = repr(store.catalog.executions.find(limit=10))
    assert any("NOVA-TASK-FAILED" in event for event in events)
    assert_masked("\n".join(re.sub(r"File [^\n]*?\\n[^\n]*?\\n", "", event) for event in events) + kept)


CHARACTERS = st.text("abcXYZ09@/?#%&=;: ~$", min_size=8, max_size=16).map(lambda text: f"{text}7s3cr3t")


@settings(max_examples=int(os.environ.get("NOVA_FUZZ_STEPS", 60)), deadline=None)
@given(
    CHARACTERS,
    st.sampled_from(["postgresql", "postgresql+psycopg", "http", "https", "s3"]),
    st.sampled_from(["password", "sslpassword", "token", "sig", "key", "X-Amz-Signature", "pass%77ord", "API%2Dkey"]),
    st.sampled_from(["{}", "cannot connect to {}: refused", "('{}', 3)", '{{"url": "{}"}}', "{}\n{}"]),
)
def test_an_address_is_masked_wherever_its_secret_stands(secret: str, scheme: str, name: str, text: str) -> None:
    encoded = quote(secret, safe="")
    for address in (
        f"{scheme}://ann:{encoded}@db.internal:5432/nova?sslmode=require",
        f"{scheme}://ann@db.internal/nova?a=b&{name}={encoded}&c=d",
        f"{scheme}://ann:{encoded}@db.internal/nova?{name}={encoded}",
    ):
        masked = mask(text.replace("{}", address))
        assert "s3cr3t" not in masked and "db.internal" in masked
        assert "ann" in masked or f"{scheme}://{MASK}@" in masked  # a token may stand where the user of a page does


@pytest.mark.core
@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/year=2024/a@b.parquet",
        "hdfs://namenode:8020/user@x/y",
        "postgresql://ann@db/nova?sslmode=require",
        "no key of channel 'stock' is null: keys=['a'], token = 'x'",
        "https://example.org:8765/v1/channels?known=12-ab",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert mask(text) == text


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "text", ["x" * 1_000_000 + " = ://", "secret" * 100_000 + "=", "a://" + "?" * 500_000 + "=", "-" * 500_000 + "://="]
)
def test_a_text_of_a_megabyte_is_masked_in_time(text: str) -> None:
    """Word after word, and not each word from each of its letters on, which takes hours."""
    assert mask(f"{text} password={PLANTED[0]}").endswith(f" password={MASK}")


@pytest.mark.core
def test_rows_are_not_masked() -> None:
    """Data is the user's: addresses in it are given as they are."""
    with World() as world:
        world.register(nova.Channel("pages", schema="url string"))
        world.insert("pages", pa.table({"url": [f"https://x.org/?token={PLANTED[0]}"]}))
        assert world.read("pages").to_arrow()["url"].to_pylist() == [f"https://x.org/?token={PLANTED[0]}"]


@pytest.mark.core
def test_every_logger_of_the_package_masks() -> None:
    root = Path(nova.__file__).parent
    own = [p for p in root.rglob("*.py") if "getLogger(" in p.read_text() and p.name != "masking.py"]
    # These handle what other loggers have said, and say nothing themselves.
    assert {p.name for p in own} == {"access_log.py", "parser_errors.py", "logs.py", "quiet_stderr.py"}, (
        "use masking.get_logger"
    )


@pytest.mark.parametrize(
    "catalog",
    [
        "host=127.0.0.1 port=1 password=S3CR3T user=u",
        "postgres:/u:S3CR3T@127.0.0.1/db",
        "postgresql+psycopg:u:S3CR3T@127.0.0.1/db",
        "dbname=d passwd = 'S3CR3T'",
    ],
)
def test_an_address_that_is_none_is_refused_and_not_shown(catalog: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nova_assets.cli", "channels", "--catalog", catalog],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "neither a path nor an address" in done.stderr
    assert "S3CR3T" not in done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []
