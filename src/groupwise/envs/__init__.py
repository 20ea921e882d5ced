"""Environments: the protocol, the environments that come with groupwise, and the conformance suite for your own."""

from __future__ import annotations

from groupwise.envs.alfworld.environment import Alfworld
from groupwise.envs.babyai import Babyai
from groupwise.envs.bfcl.environment import Bfcl
from groupwise.envs.checker import check_environment
from groupwise.envs.countdown import Countdown
from groupwise.envs.data_set import DataSet
from groupwise.envs.environment import Environment, Observation, Outcome, RolloutEnded
from groupwise.envs.gem import Gem
from groupwise.envs.gymnasium_text import Gymnasium
from groupwise.envs.household import Household
from groupwise.envs.identity import Identity
from groupwise.envs.kit.progress import Progress
from groupwise.envs.kit.task_set import SPLITS, TaskSetFile, check_disjoint, task_set_hash
from groupwise.envs.math import Math
from groupwise.envs.mixture import Mixture
from groupwise.envs.openenv import Openenv
from groupwise.envs.reasoning_gym import ReasoningGym
from groupwise.envs.scienceworld import Scienceworld
from groupwise.envs.search_qa.environment import SearchQa
from groupwise.envs.small.aliased import Aliased
from groupwise.envs.small.boxes import Boxes
from groupwise.envs.small.gridworld import Gridworld
from groupwise.envs.small.lookup import Lookup
from groupwise.envs.small.ranked_lists import RankedLists
from groupwise.envs.small.storefront import Storefront
from groupwise.envs.small.worked_sums import WorkedSums
from groupwise.envs.sokoban import Sokoban
from groupwise.envs.textarena import Textarena
from groupwise.envs.textworld import Textworld
from groupwise.envs.textworld_express import TextworldExpress
from groupwise.envs.webshop.environment import Webshop
from groupwise.parts.part import Part

CATALOGUE: dict[str, dict[str, type[Part]]] = {
    "env": {
        "household": Household,
        "gridworld": Gridworld,
        "boxes": Boxes,
        "countdown": Countdown,
        "worked_sums": WorkedSums,
        "ranked_lists": RankedLists,
        "lookup": Lookup,
        "identity": Identity,
        "aliased": Aliased,
        "gymnasium": Gymnasium,
        "alfworld": Alfworld,
        "textworld": Textworld,
        "textworld_express": TextworldExpress,
        "scienceworld": Scienceworld,
        "reasoning_gym": ReasoningGym,
        "math": Math,
        "data_set": DataSet,
        "storefront": Storefront,
        "webshop": Webshop,
        "search_qa": SearchQa,
        "bfcl": Bfcl,
        "babyai": Babyai,
        "sokoban": Sokoban,
        "textarena": Textarena,
        "gem": Gem,
        "openenv": Openenv,
        "mixture": Mixture,
    }
}
