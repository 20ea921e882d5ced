"""Write docs/methods/: one page per method, from its docstring, its notes (docs/methods/notes/) and its parts.

python docs/build_methods.py [--check]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import tomli_w

from groupwise import methods

FOLDER = Path(__file__).parent / "methods"
INDEX = Path(__file__).parent / "reference" / "methods.md"
RELATIONS = {
    "grpo": ["`grpo` at one step per rollout is what verl and TRL call GRPO, up to eps."],
    "dr_grpo": ["`rloo` = n / (n - 1) x `dr_grpo`.", "`grpo` = `dr_grpo` / (deviation + eps)."],
    "rloo": [
        "`rloo` = n / (n - 1) x `dr_grpo`.",
        "If every answer is as likely as under the reference, `rloo(kl_in_reward=b)` = `rloo` for any b.",
    ],
    "reinforce_pp": [
        "If every token is as likely as under the reference, `reinforce_pp(kl_in_reward=b)` = `reinforce_pp`."
    ],
    "dpo": ["`rpo(eta=0)` = `dpo` at the beta of `rpo`; `step_apo(alpha=0)` = `dpo` between steps."],
    "rpo": ["`rpo(eta=0, beta=b)` = `dpo(beta=b)`."],
    "step_apo": ["`step_apo(alpha=0, beta=b)` = the loss of `dpo(beta=b)`, between steps of one state."],
    "w_dpo": ["If every two rollouts have different scores, `w_dpo` = `dpo` over all pairs, each counting the same."],
    "p3o": [
        "`p3o(clip='none')`, on-policy, has the gradient of `rloo` on whole rollouts, times (n - 1) / 2 for a task of "
        "n rollouts: a constant if all tasks have equally many."
    ],
    "simpo": [
        "Rollouts of L tokens each: `simpo(margin=0, beta=b)` = the loss of `dpo(beta=b / L)` without its reference."
    ],
    "disco": [
        "For large tau, `disco` = `disco(negatives='mean')`, which is DisCO-b.",
        "On-policy, with rewards of 0 and 1, `disco(negatives='mean')` has the gradient of `dr_grpo`'s advantage over "
        "p (1 - p), the mean over rollouts, then tokens; p is the fraction of a task's rollouts that solved it.",
    ],
    "reg_grpo": [
        "At the first optimizer step of an update, `reg_grpo(kl=0)` has 2 / floor times the gradient of REINFORCE on "
        "`grpo`'s advantage, summed over tokens, the mean over rollouts; later steps fit how far it went.",
    ],
    "gspo": ["If every answer is one token, `gspo` has the loss of `grpo` without its KL, at the clip of `gspo`."],
    "cispo": [
        "On-policy, `cispo` has the policy gradient, as every surrogate here has: `plain` of the same advantages."
    ],
    "sapo": ["On-policy, `sapo` has the policy gradient, as every surrogate here has: `plain` of the same advantages."],
    "after_etr": ["`after_etr(by_credit=0, by_spread=0)` = GRPO's advantage with the clip 0.2 and no KL."],
    "r2vpo": ["`r2vpo(first=0)` = GRPO's advantage with importance weights and no trust region (`plain`)."],
    "llds": ["`llds(weight=0)` = `grpo`; so is the first optimizer step of an update under any weight."],
    "epo": ["`epo(smoothing=0)` = `grpo` with an entropy bonus of the same weight, bit-exact."],
    "after_vgpo": [
        "`after_vgpo(k=0)` = the advantages of `grpo`, bit-exact.",
        "If all rollouts of a task get the same R, `after_vgpo` gives exactly k * R and `grpo` 0.",
    ],
    "copo": [
        "`copo(mode='off')` = `grpo`'s advantage, bit-exact, with the clip 0.2, the dual clip 3 and no KL.",
        "The loss of `copo` = w * the clipped loss of `grpo`'s advantage + (1 - w) * that of the tasks' advantage.",
    ],
    "gardo": [
        "`gardo(diversity=False, every=None, max_kl=inf)` without `auxiliary` = the advantages of `dr_grpo` with the "
        "clip 0.2 and a KL of the same weight, bit-exact."
    ],
    "srpo": ["If no rollout is exact, or fewer than k are not, `srpo` = the advantages of `grpo`."],
    "after_concise_r": ["If a task has a rollout that failed, `after_concise_r` = the advantages of `grpo`."],
    "seeupo": [
        "On rollouts of one turn, `seeupo` = the loss of `gspo(low=0.2, high=0.2)` on the advantages of `dr_grpo`."
    ],
    "after_dsdr": ["`after_dsdr(bonus=0, entropy=0)` = `grpo` without its KL, if returns are 0 and 1."],
    "after_polychromic": [
        "If each of N rollouts is of another kind, `after_polychromic(size=n)` = (N - n) / (n (N - 1)) x `dr_grpo`."
    ],
    "hdpo": ["`hdpo(tool_weight=0)` = `grpo` without its KL; so is any weight if at most one rollout is right."],
    "rec": [
        "`rec(weighted=True)` has the gradient of the clipped loss on the advantages of `dr_grpo`, token by token."
    ],
    "opmd": ["`opmd(tau=0)` = REINFORCE on the advantages of `dr_grpo` = `asymre(shift=0)`."],
    "asymre": ["`asymre(shift=c)` = `dr_grpo` + c: the same as -c logp beside the loss of REINFORCE."],
    "red_weight": ["For large temperatures, `red_weight` = `dr_grpo`."],
    "gigpo": ["`gigpo(step_weight=0)` = `grpo`."],
    "hgpo": [
        "`hgpo(depth=0, scale='none')` = the state term of `gigpo(scale='none')`.",
        "Not prime-rl's `hierarchical_grpo`, which pairs a proposer with a solver.",
    ],
    "gagpo": [
        "`gagpo(lam=1, scale_by='none', invalid_penalty=0)` = `hgpo(depth=0, scale='none', invalid_penalty=0)`.",
        "`gagpo(lam=0, scale_by='none')` is one difference: r + gamma V(s') - V(s).",
    ],
    "hgae": [
        "`hgae(depth=0)` = `gagpo`.",
        "`hgae(lam=1, scale_by='none', invalid_penalty=0)` = `hgpo(scale='none', invalid_penalty=0)`.",
    ],
    "shrunk_hgae": [
        "If every step has a state, `shrunk_hgae(strength=0, depth=0)` = `gagpo(lam=0, gamma=1)`.",
        "For a large strength, `shrunk_hgae(lam=1, scale_by='none')` = the return less the mean over the task's steps.",
    ],
    "salt": ["Without shared edges, `salt` = its base method."],
    "ppo": [
        "If all values are 0, `ppo(whiten=False)` gives each token its remaining return: `token_return`, bit-exact."
    ],
    "turn_ppo": [
        "If all values are 0, `turn_ppo(lam=1, whiten=False)` gives each step its discounted return, bit-exact.",
        "If every response is one token, `turn_ppo(whiten=False)` = `ppo(whiten=False)` at the same gamma and lam.",
        "With exact values, in a deterministic environment, `turn_ppo(lam=0, whiten=False)` gives the true advantages.",
    ],
    "ngrpo": ["`ngrpo(virtual=0)` = `grpo`."],
    "r3": ["With nothing to replay, rank or reflect on, `r3` = `grpo(ddof=0)`."],
    "r3_grpo_ablation": ["`r3_grpo_ablation()` = `grpo(ddof=0)`; with all three switches on it is `r3`."],
    "r3_hgpo": ["With nothing to replay, rank or reflect on, `r3_hgpo` = `hgpo(invalid_penalty=0)`."],
    "flow_grpo": ["`flow_grpo()` = `grpo()`; they differ in the loss that follows."],
    "reinforce_pp_baseline": ["`dr_grpo`, whitened over the batch's tokens."],
    "gtpo": [
        "`gtpo(boost=1, entropy_weight=0)` = `dr_grpo`'s advantage if no bad answer begins or ends as a good one."
    ],
    "d3s": [
        "`d3s(first_samples=1, first_tokens=1)` = `grpo` without its KL and with the mean over tokens.",
        "The answers that `d3s` chooses are those of the largest variance among all choices of as many.",
    ],
    "dcpo": ["If no answer is right, or the entropy is on target, `dcpo` has `grpo`'s advantage."],
    "verl": [
        "`verl(weight=0)` has `grpo`'s advantage, bit-exact; so has the first update under any weight.",
        "Not the trainer verl, whose files `groupwise audit` reads.",
    ],
    "bcpg_nsa": [
        "`bcpg_nsa(beta=1)`, or a judge that calls no step right: the advantages of `dr_grpo`, bit-exact.",
        "`bcpg_nsa(beta=1, tau=0)` has the loss of `asymre(shift=0)`, REINFORCE, but each answer counts the same.",
    ],
    "prorag": [
        "`prorag(weight=0)`, or a judge that scores all steps alike: the advantages of `grpo(eps=1e-4)`, bit-exact.",
        "A constant on all scores of a group, after the sigmoid, changes nothing.",
    ],
    "rank_grpo": [
        "With lists of one rank, the advantage of an item is that of `grpo(eps=1e-4)` on its relevance.",
        "If each item is one token, its ratio is that of a token; if an answer is one span, GSPO's.",
    ],
    "after_webstar": [
        "Scores from 0 to 10: `after_webstar(above=-1)` = `grpo` on the steps without a negative advantage, "
        "`above=10` on those without a positive one."
    ],
    "pav": [
        "`pav(alpha=0)` = the advantages of `rloo`, bit-exact, and nothing is sampled.",
        "Progress adds up to success less the value of the beginning: sum_t (V_after - V_before) = success - V(s_0).",
    ],
    "spo_chain": ["`spo_chain(whiten=False)` with one segment per answer has `rloo`'s advantage, bit-exact."],
    "spae": ["`spae(alpha=0, xi=0)` = `dr_grpo`'s advantage, whitened over the batch's tokens."],
    "after_vsrm": ["`after_vsrm(weight=0)` = `dr_grpo`'s advantage."],
}


def page(name: str) -> str:
    """The page of a method."""
    summary = methods.summary(name)
    options = "\n".join(f"| `{key}` | `{value!r}` |" for key, value in summary.options.items())
    relations = "".join(f"- {line}\n" for line in RELATIONS.get(name, []))
    notes = FOLDER / "notes" / f"{name}.md"
    depth = f"{notes.read_text(encoding='utf-8').strip()}\n\n" if notes.exists() else ""
    config = tomli_w.dumps({"algorithm": methods.build(name).config()})
    return (
        f"# {name}\n\n<!-- Written by docs/build_methods.py from the method's docstring. Do not edit by hand. -->\n\n"
        f"```text\n{summary.text}\n```\n\n{depth}"
        f"## Options\n\n| option | default |\n|---|---|\n{options}\n\n"
        + (f"## Relations\n\n{relations}\n" if relations else "")
        + f"## Parts\n\nThe defaults, as a run file spells them out:\n\n```toml\n{config}```\n"
    )


def index() -> str:
    """The list of methods."""
    rows = "\n".join(
        f"| [{name}](../methods/{name}.md) | {methods.summary(name).sentence} | {methods.summary(name).citation} |"
        for name in methods.names()
    )
    return (
        "# Methods\n\n<!-- Written by docs/build_methods.py. Do not edit by hand. -->\n\n"
        f"| method | what it does | source |\n|---|---|---|\n{rows}\n\n"
        "[Numbers worked by hand](../../conformance/numbers.md): the arithmetic that the tests hold these to.\n"
    )


def pages() -> dict[Path, str]:
    """Every page and its text."""
    pages = {FOLDER / f"{name}.md": page(name) for name in methods.names()}
    return {INDEX: index(), **pages}


def main() -> None:
    """Write the pages; with --check, report which are stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with status 1 where a page is out of date")
    if parser.parse_args().check:
        sys.exit(any(not path.exists() or path.read_text() != text for path, text in pages().items()))
    FOLDER.mkdir(exist_ok=True)
    for path, text in pages().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
