"""Run the example: `python -m char_transformer --help` tells what can be asked for."""

import json
import time
from collections.abc import Mapping, Sequence

import numpy as np

from fiveloop.remat import UnattainableError

from .costs import compared, policy_costs
from .data import Corpus, batches, load_corpus
from .evaluate import whole_text
from .ngrams import held_out_nats
from .options import Options, parse_options
from .plots import PolicyCost, draw_run
from .sample import sample_text
from .train import Trained, make_nats, size_of, train


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, and print and write what came out."""
    start = time.perf_counter()
    options = parse_options(arguments)
    corpus = load_corpus()
    print(
        f"pydoc_data.topics: {len(corpus.train):,} characters to train on, "
        f"{len(corpus.held_out):,} held out, {len(corpus.vocabulary)} different ones"
    )
    ngrams = held_out_nats(corpus.train, corpus.held_out, num_symbols=len(corpus.vocabulary))
    of_batch = make_nats(size_of(options, corpus))
    try:
        trained = train(options, corpus, of_batch)
    except UnattainableError as error:
        # The rest is a line of this example.
        raise SystemExit(f"--budget: {error}".partition("\n")[0]) from None
    text = whole_text(corpus.held_out, context=options.context, batch=options.batch)
    loss = text.loss(of_batch, trained.state["params"])
    print(f"\n{loss_table(loss, ngrams)}")
    print(f"\nsample:\n{draw_sample(options, corpus, trained)}")
    costs = compare_policies(options, corpus, trained) if options.compare_policies else []
    if costs:
        print(f"\n{cost_table(costs)}")
    write_results(options, trained, loss, ngrams, costs)
    print(f"\n{time.perf_counter() - start:.0f} seconds in all; results are in {options.out}")


def draw_sample(options: Options, corpus: Corpus, trained: Trained) -> str:
    """Let the model go on from the prompt."""
    known = "".join(c for c in options.prompt if c in corpus.vocabulary) or "\n"
    tokens = sample_text(
        trained.state["params"],
        corpus.encode(known),
        size_of(options, corpus),
        length=options.characters,
        seed=options.seed,
    )
    return corpus.decode(tokens)


def compare_policies(options: Options, corpus: Corpus, trained: Trained) -> list[PolicyCost]:
    """Measure a training step of this run under each policy and within each budget."""
    batch = next(
        batches(corpus.train, batch=options.batch, context=options.context, seed=options.seed)
    )
    shape = (options.microbatches, -1, options.context + 1)
    names = compared(options.budget)
    return policy_costs(trained.state, batch.reshape(shape), size_of(options, corpus), names)


def loss_table(loss: float, ngrams: Mapping[int, float]) -> str:
    """Show the held-out losses, the highest first, with the model among the n-grams."""
    rows = {f"{order}-gram": nats for order, nats in ngrams.items()} | {"transformer": loss}
    lines = [f"{'held out':14}{'nats/char':>10}{'bits/char':>11}"]
    for name, nats in sorted(rows.items(), key=lambda row: -row[1]):
        mark = "  <--" if name == "transformer" else ""
        lines.append(f"{name:14}{nats:10.3f}{nats / np.log(2):11.3f}{mark}")
    return "\n".join(lines)


def cost_table(costs: Sequence[PolicyCost]) -> str:
    """Show what a step costs under each policy and within each budget."""
    lines = [f"{'policy or budget':34}{'temporary memory':>18}{'step':>10}"]
    for cost in costs:
        memory, milliseconds = cost.temporary_bytes / 1e6, cost.seconds * 1e3
        name = f"budget {cost.policy}" if cost.is_budget else cost.policy
        lines.append(f"{name:34}{memory:15.1f} MB{milliseconds:7.0f} ms")
    return "\n".join(lines)


def write_results(
    options: Options,
    trained: Trained,
    loss: float,
    ngrams: Mapping[int, float],
    costs: Sequence[PolicyCost],
) -> None:
    """Write the curve as JSON, and the picture."""
    options.out.mkdir(parents=True, exist_ok=True)
    record = {
        "options": {name: str(value) for name, value in vars(options).items()},
        "held_out_nats": loss,
        "ngram_nats": ngrams,
        "train_losses": list(trained.curve.train),
        "held_out_losses": dict(trained.curve.held_out),
        "seconds": trained.seconds,
        "policies": [vars(cost) for cost in costs],
    }
    (options.out / "run.json").write_text(json.dumps(record, indent=1), encoding="utf-8")
    if options.plot:
        title = (
            f"{options.layers} layers, width {options.width}: "
            f"held-out loss {loss:.2f} nats per character"
        )
        draw_run(options.out / "run.png", trained.curve, loss, ngrams, costs, title)


if __name__ == "__main__":
    main()
