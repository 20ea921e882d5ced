"""Run files: decoded, overridden, completed by a schema; and the way from one to a trained run."""
