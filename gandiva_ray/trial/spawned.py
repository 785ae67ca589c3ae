"""A trial in a fresh process, for what must not be forked: a template starts it, and pickles it to standard input."""

from __future__ import annotations

import pickle
import sys

from gandiva_ray.trial.child import Birth, live
from gandiva_ray.trial.loading import Trainable, import_torch, load_trainable, prepare_environment
from gandiva_ray.trial.protocol import LaunchMessage, TemplateArguments


def main() -> None:
    arguments: TemplateArguments
    launch: LaunchMessage
    arguments, launch, template = pickle.loads(sys.stdin.buffer.read())
    prepare_environment(arguments.environment)

    def load() -> Trainable:
        import_torch()
        return load_trainable(arguments.trainable)

    live(Birth(arguments, launch, template, load))


if __name__ == "__main__":
    main()
