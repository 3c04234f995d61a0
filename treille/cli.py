"""The `treille` command.

This file is all that `treille --help` imports: what a command needs (torch, for one) is loaded when
the command runs.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from importlib.metadata import version
from typing import Annotated, Any

import typer

from treille.cli_errors import one_line

TRACEBACK_FLAG = "--traceback"
TRACEBACK_VARIABLE = "TREILLE_TRACEBACK"
INTERRUPTED = 130

app = typer.Typer(
    name="treille",
    help="A structured-generation language and its runtime.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

ModelArgument = Annotated[
    str, typer.Argument(metavar="MODEL", help="Alias, model folder, GGUF file, or hub id (org/name).")
]
DeviceOption = Annotated[str | None, typer.Option(help="cpu or cuda; by default CUDA where there is one.")]
DtypeOption = Annotated[
    str | None, typer.Option(help="float32, bfloat16, int8 or int4; by default what the device is fast at.")
]

WhitespaceOption = Annotated[
    str | None,
    typer.Option(
        metavar="WORD|OBJECT",
        help="Of a schema's values: flexible, the default, compact, any, or as in "
        """'{"indent": 2, "separators": [",", ": "]}'.""",
    ),
]
OrderOption = Annotated[str | None, typer.Option(help="Of a schema's keys: schema, the default, or any.")]
NumbersOption = Annotated[
    str | None, typer.Option(help="Of a schema's values: json, the default, or plain (3 and 0.5 only).")
]
FormatsOption = Annotated[
    str | None, typer.Option(help="Of a schema: assert, the default, or annotation (not enforced).")
]
EscapesOption = Annotated[
    str | None,
    typer.Option(
        help="Of a schema's strings: minimal, the default, or any, the default for --whitespace any."
    ),
]


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit. What goes wrong is told in one line on stderr: exit code 1, or 2
    for a command line that cannot be understood. `--traceback` anywhere in it shows all of it."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    shows_traceback = os.environ.get(TRACEBACK_VARIABLE, "0") not in ("", "0") or TRACEBACK_FLAG in words
    words = [word for word in words if word != TRACEBACK_FLAG]
    try:
        code = typer.main.get_command(app).main(words, prog_name="treille", standalone_mode=False)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception as error:
        if shows_traceback:
            traceback.print_exception(error)
        message, code = one_line(error)
        if message:
            print(message, file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)


def _implementation(module: str) -> Any:
    """A command's module, loaded now and not with this file: torch alone takes seconds, and
    `--help` and `--version` answer without it."""
    return importlib.import_module(f"treille.{module}")


def _schema_options(
    whitespace: str | None,
    property_order: str | None,
    number_style: str | None,
    formats: str | None,
    escapes: str | None,
) -> dict[str, str | None]:
    return {
        "whitespace": whitespace,
        "property_order": property_order,
        "number_style": number_style,
        "formats": formats,
        "escapes": escapes,
    }


def _print_version(*, wanted: bool) -> None:
    if wanted:
        print(f"treille {version('treille')}")
        raise typer.Exit


@app.callback()
def _root(
    *,
    show_version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=lambda value: _print_version(wanted=bool(value)),
            is_eager=True,
            help="Print the version.",
        ),
    ] = False,
    show_traceback: Annotated[
        bool,
        typer.Option(
            TRACEBACK_FLAG,
            envvar=TRACEBACK_VARIABLE,
            help="Show where in the code an error comes from.",
        ),
    ] = False,
) -> None:
    # Both are dealt with before a command runs: the version by its callback, the traceback by `main`.
    del show_version, show_traceback


@app.command()
def serve(
    model: ModelArgument,
    *,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
    api_key: Annotated[
        str | None,
        typer.Option(envvar="TREILLE_API_KEY", help="What clients must send. Safer in the environment."),
    ] = None,
    served_model_name: Annotated[
        str | None, typer.Option(help="The name that clients ask for; by default the model's.")
    ] = None,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    max_seq_len: Annotated[
        int | None, typer.Option(help="Most tokens of prompt and answer; by default the model's.")
    ] = None,
    max_num_seqs: Annotated[int, typer.Option(help="Most sequences computed at a time.")] = 64,
    max_batched_tokens: Annotated[int, typer.Option(help="Most tokens computed in one step.")] = 2048,
    max_queued: Annotated[int, typer.Option(help="Most requests that wait; more get a 503.")] = 4096,
    kv_memory: Annotated[
        str | None, typer.Option(help="Memory for keys and values, such as 2GiB; by default enough.")
    ] = None,
    page_size: Annotated[int, typer.Option(help="Tokens in a page of the cache.")] = 16,
    prefix_caching: Annotated[bool, typer.Option(help="Keep computed prefixes for later requests.")] = True,
    schedule_policy: Annotated[
        str, typer.Option(help="lpm (longest cached prefix first), dfs-weight, fcfs or priority.")
    ] = "lpm",
    eviction: Annotated[
        str, typer.Option(help="What leaves a full cache first: lru, lfu or priority.")
    ] = "lru",
    host_memory: Annotated[
        str | None, typer.Option(help="Memory for what leaves a full cache, such as 8GiB; by default none.")
    ] = None,
    cache_file: Annotated[
        str | None, typer.Option(help="A file that keeps the cache over a restart; by default none.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed for requests that bring none.")] = 0,
    log_level: Annotated[str, typer.Option(help="critical, error, warning, info or debug.")] = "info",
) -> None:
    """Serve a model over HTTP, to OpenAI's clients among others."""
    settings = {
        "device": device,
        "dtype": dtype,
        "max_seq_len": max_seq_len,
        "max_num_seqs": max_num_seqs,
        "max_batched_tokens": max_batched_tokens,
        "max_queued": max_queued,
        "kv_memory": kv_memory,
        "page_size": page_size,
        "enable_prefix_caching": prefix_caching,
        "schedule_policy": schedule_policy,
        "eviction": eviction,
        "host_memory": host_memory,
        "cache_file": cache_file,
        "seed": seed,
    }
    _implementation("cli_serve").serve(
        model,
        settings,
        host=host,
        port=port,
        api_key=api_key,
        model_name=served_model_name,
        log_level=log_level,
    )


@app.command()
def run(
    program: Annotated[
        str, typer.Argument(metavar="FILE.py[:PROGRAM]", help="The file, and which program in it.")
    ],
    *,
    arg: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="An argument of the program; once for each."),
    ] = None,
    model: Annotated[str, typer.Option(help="As for serve.")] = "smollm2-135m",
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    max_tokens: Annotated[int | None, typer.Option(help="Default of every gen.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Default of every gen; 0 is greedy.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Default of every gen.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Default of every gen.")] = None,
    seed: Annotated[int | None, typer.Option(help="Default of every gen.")] = None,
) -> None:
    """Run a program and show its text as it comes."""
    sampling = {
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "seed": seed,
    }
    # What is wrong with the file or the arguments is told before seconds are spent on torch.
    files = _implementation("program_file")
    chosen = files.load_program(program)
    _implementation("cli_run").run(
        chosen,
        files.read_arguments(chosen, arg or []),
        model=model,
        settings={"device": device, "dtype": dtype},
        sampling={name: value for name, value in sampling.items() if value is not None},
    )


@app.command()
def grammar(
    file: Annotated[str | None, typer.Argument(metavar="FILE", help="A Lark grammar.")] = None,
    *,
    regex: Annotated[str | None, typer.Option(metavar="PATTERN", help="Instead of FILE.")] = None,
    schema: Annotated[
        str | None, typer.Option(metavar="FILE", help="A JSON Schema, instead of FILE.")
    ] = None,
    dialect: Annotated[
        str | None, typer.Option(help="Of --regex: python (the whole text) or ecma (found anywhere).")
    ] = None,
    start: Annotated[str | None, typer.Option(metavar="RULE", help="Of FILE; by default start.")] = None,
    parser: Annotated[str | None, typer.Option(help="Of FILE: earley, the default, or lalr.")] = None,
    tokenizer: Annotated[
        str, typer.Option(help="Alias, model folder, tokenizer.json, GGUF file, or hub id.")
    ] = "smollm2-135m",
    whitespace: WhitespaceOption = None,
    property_order: OrderOption = None,
    number_style: NumbersOption = None,
    formats: FormatsOption = None,
    escapes: EscapesOption = None,
    text: Annotated[str | None, typer.Option(help="A text to try.")] = None,
    draw: Annotated[
        str | None, typer.Option(metavar="OUT.svg|OUT.dot", help="Draw the automaton; SVG needs graphviz.")
    ] = None,
    draw_bytes: Annotated[
        bool, typer.Option("--draw-bytes", help="Draw it byte by byte, not by whole characters.")
    ] = False,
) -> None:
    """Show what a constraint allows, where a text fails and what it costs. Exit code 1: text not accepted."""
    # What is wrong with the command line is told before seconds are spent on loading.
    files = _implementation("grammar_source")
    options = _schema_options(whitespace, property_order, number_style, formats, escapes)
    source = files.read_source(
        file, regex, schema, dialect=dialect, start=start, parser=parser, options=options
    )
    picture, data = files.check_picture(draw, in_bytes=draw_bytes), files.check_text(text)
    _implementation("cli_grammar").grammar(
        source, tokenizer=tokenizer, text=data, draw=picture, in_bytes=draw_bytes
    )


@app.command()
def schema(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A JSON Schema.")],
    *,
    witnesses: Annotated[int, typer.Option(min=0, max=1000, help="How many examples to draw.")] = 5,
    seed: Annotated[int, typer.Option(help="Of the examples: another one, others.")] = 1,
    whitespace: WhitespaceOption = None,
    property_order: OrderOption = None,
    number_style: NumbersOption = None,
    formats: FormatsOption = None,
    escapes: EscapesOption = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="Compile for its tokens too: as for grammar. By default for bytes.")
    ] = None,
) -> None:
    """Show what of a JSON Schema is enforced and how, and examples of its values. Exit code 1: refused."""
    options = _schema_options(whitespace, property_order, number_style, formats, escapes)
    source = _implementation("grammar_source").read_schema(file, options)
    _implementation("cli_schema").schema(source, tokenizer=tokenizer, witnesses=witnesses, seed=seed)


@app.command()
def models() -> None:
    """List the models that have a short name."""
    _implementation("cli_models").models()
