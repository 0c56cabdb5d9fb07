"""What one step of a loop computes, in terms of any library with NumPy's names."""

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.loops.inputs import GAP, PERIOD, PLACES, SOFTENING, TAPS, TIME_STEP


def recur(xp: Any, p: Any, h: Any, x: Any) -> Any:
    """One step of the scalar recurrence."""
    return xp.tanh(p[0] * h + p[1] * x)


def gated(xp: Any, sigmoid: Callable[[Any], Any], gates: Any, h: Any, c: Any) -> tuple[Any, Any]:
    """The next h and c of an LSTM from its four gates."""
    i, f, g, o = xp.split(gates, 4, axis=-1)
    c = sigmoid(f) * c + sigmoid(i) * xp.tanh(g)
    return sigmoid(o) * xp.tanh(c), c


def lstm_cell(
    xp: Any, sigmoid: Callable[[Any], Any], p: Mapping[str, Any], state: Any, x: Any
) -> tuple[Any, Any]:
    """One step of an LSTM."""
    h, c = state
    return gated(xp, sigmoid, x @ p["wx"] + h @ p["wh"] + p["b"], h, c)


def edit_cell(xp: Any, corner: Any, above: Any, left: Any, a: Any, b: Any) -> Any:
    """The distance of two prefixes from those of its three neighbours."""
    return xp.minimum(xp.minimum(above, left) + GAP, corner + xp.abs(a - b))


def shorter(xp: Any, d: Any, k: Any) -> Any:
    """All distances, now also by way of k."""
    return xp.minimum(d, d[:, k][:, None] + d[k][None, :])


def kick_and_drift(xp: Any, pos: Any, vel: Any, mass: Any) -> tuple[Any, Any]:
    """Positions and velocities of bodies after a moment."""
    gaps = pos[None, :, :] - pos[:, None, :]
    pull = mass / (xp.sum(gaps * gaps, axis=-1) + SOFTENING) ** 1.5
    vel = vel + PERIOD * xp.sum(gaps * pull[:, :, None], axis=1)
    return pos + PERIOD * vel, vel


def generation(xp: Any, board: Any) -> Any:
    """The next board of the game of life, on a torus."""
    turns = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)]
    around = sum(xp.roll(board, turn, axis=(0, 1)) for turn in turns)
    return xp.where((around == 3) | ((around == 2) & (board == 1)), 1, 0).astype(board.dtype)


def hunt(xp: Any, y: Any, p: Any) -> Any:
    """How prey and predators grow."""
    prey, predators = y[0], y[1]
    met = prey * predators
    return xp.stack([p[0] * prey - p[1] * met, p[2] * met - p[3] * predators])


def rk4(xp: Any, y: Any, p: Any) -> Any:
    """One step of the classical Runge-Kutta rule."""
    h = TIME_STEP
    k1 = hunt(xp, y, p)
    k2 = hunt(xp, y + 0.5 * h * k1, p)
    k3 = hunt(xp, y + 0.5 * h * k2, p)
    k4 = hunt(xp, y + h * k3, p)
    return y + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)


def midpoint(xp: Any, y: Any, v: Any, u: Any) -> Any:
    """One step of the midpoint rule; the derivative is a network of one hidden layer."""

    def derivative(y: Any) -> Any:
        return xp.tanh(y @ v) @ u

    return y + TIME_STEP * derivative(y + 0.5 * TIME_STEP * derivative(y))


def tapped(ring: Any, t: Any, x: Any) -> tuple[Any, Any]:
    """The ring buffer with what comes in at a step, and the weighted sum of what came in at some steps before."""
    ring = ring.at[t % PLACES].set(x)
    return ring, sum(w * ring[(t + PLACES - late) % PLACES] for late, w in TAPS.items())


def layer(xp: Any, weights: Any, x: Any) -> Any:
    """One step of the dear branch: a layer of a network, on one lane."""
    return xp.tanh(weights @ x)


def cheap(x: Any) -> Any:
    """The other branch."""
    return 0.5 * x


def scaled(kernel: Any, mass: Any, u: Any) -> Any:
    """One step of Sinkhorn's algorithm: both scalings that give a plan its marginals, here equal ones."""
    return mass / (kernel @ (mass / (kernel.T @ u)))
