package examples

import (
	"slices"
	"strings"

	"deepswe/env"
)

// HeldOut is a set of tasks that no judge may be trained on, because judges are measured on them. The zero value
// contains all tasks from the repositories of SWE-bench's test set, including Verified and Lite: other datasets made
// from these have the same code, and often the same issues.
type HeldOut struct {
	ids        map[string]bool
	statements map[string]bool
}

// sweBench lists the repositories of SWE-bench's test set (Jimenez et al. 2024, table 8).
var sweBench = []string{
	"astropy/astropy", "django/django", "matplotlib/matplotlib", "mwaskom/seaborn", "pallets/flask", "psf/requests",
	"pydata/xarray", "pylint-dev/pylint", "pytest-dev/pytest", "scikit-learn/scikit-learn", "sphinx-doc/sphinx",
	"sympy/sympy",
}

// Add holds out a task of an evaluation set, by its id and by its issue's text.
func (h *HeldOut) Add(t env.Task) {
	if h.ids == nil {
		h.ids, h.statements = map[string]bool{}, map[string]bool{}
	}
	h.ids[t.ID] = true
	if s := normalized(t.Statement); s != "" {
		h.statements[s] = true
	}
}

// Has reports whether the task is held out.
func (h HeldOut) Has(t env.Task) bool {
	return h.ids[t.ID] || h.statements[normalized(t.Statement)] || ofSWEBench(t)
}

// normalized returns a statement without differences in case and white space, as found between copies of a dataset.
func normalized(statement string) string {
	return strings.ToLower(strings.Join(strings.Fields(statement), " "))
}

// ofSWEBench reports whether the task's repository is one of SWE-bench's. Its name may lack the owner, as in R2E-Gym,
// may be that of a copy ("swesmith/sympy__sympy.2ab64612"), or may only be in the task's id ("sympy__sympy-13757").
func ofSWEBench(t env.Task) bool {
	repo := strings.ToLower(strings.TrimPrefix(t.Repo, "swesmith/"))
	return slices.ContainsFunc(sweBench, func(one string) bool {
		spelled := strings.ReplaceAll(one, "/", "__")
		_, name, _ := strings.Cut(one, "/")
		return repo == one || repo == name || strings.HasPrefix(repo, spelled+".") || repo == spelled ||
			strings.HasPrefix(strings.ToLower(t.ID), spelled+"-") || strings.HasPrefix(strings.ToLower(t.ID), spelled+".")
	})
}
