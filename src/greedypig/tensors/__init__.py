"""Any model on any tensors: `gp.explain`, `gp.explain_many`, methods, baselines, objectives."""
