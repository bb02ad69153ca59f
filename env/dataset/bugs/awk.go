package bugs

func awk() []piece {
	const split = "\tn = split(list, NOUN, \" \")"
	loop := func(body string) []string {
		return []string{
			"function FUNC(list,   NOUN, n, i, all) {", split, "\tall = 0", "\tfor (i = 1; i <= n; i++)", "\t\t" + body,
			"\treturn all", "}",
		}
	}
	choose := func(operator string) []string {
		return []string{
			"function FUNC(list,   NOUN, n, i, best) {", split, "\tif (n == 0) return \"none\"", "\tbest = NOUN[1]",
			"\tfor (i = 2; i <= n; i++)", "\t\tif (NOUN[i] " + operator + " best)", "\t\t\tbest = NOUN[i]", "\treturn best", "}",
		}
	}
	step := func(operator string) []string {
		return []string{
			"function FUNC(a, b,   NOUN, i) {", "\tNOUN = a", "\tfor (i = a + 1; i " + operator + " b; i++)",
			"\t\tNOUN = NOUN \" \" i", "\treturn NOUN", "}",
		}
	}
	plain := func(parameters, value string) []string {
		return []string{"function FUNC(" + parameters + ",   NOUN) {", "\tNOUN = " + value, "\treturn NOUN", "}"}
	}
	choice := func(condition string) []string {
		return []string{
			"function FUNC(x, low, high,   NOUN) {", "\tNOUN = \"no\"", "\tif (" + condition + ")", "\t\tNOUN = \"yes\"",
			"\treturn NOUN", "}",
		}
	}
	ab := []string{"a", "b"}
	return []piece{
		{
			verb: "total", usage: "LIST", does: "adds up the NOUNs that it is given", list: true,
			lines: loop("all += NOUN[i]"), call: several, want: total,
			flaws: []flaw{swap(WrongOperator, 4, " += ", " -= "), swap(OffByOne, 3, " <= ", " < ")},
		},
		{
			verb: "debt", usage: "LIST", does: "takes all NOUNs that it is given from zero", list: true,
			lines: loop("all -= NOUN[i]"), call: several,
			want:  func(args []string) string { return "-" + total(args) },
			flaws: []flaw{swap(WrongOperator, 4, " -= ", " += "), swap(OffByOne, 3, " <= ", " < ")},
		},
		{
			verb: "evens", usage: "LIST", does: "counts the NOUNs that are even", list: true,
			lines: loop("all += NOUN[i] % 2 == 0"), call: mixed, want: count(even),
			flaws: []flaw{swap(WrongOperator, 4, " == ", " != ")},
		},
		{
			verb: "odds", usage: "LIST", does: "counts the NOUNs that are odd", list: true,
			lines: loop("all += NOUN[i] % 2 != 0"), call: mixed, want: count(odd),
			flaws: []flaw{swap(WrongOperator, 4, " != ", " == ")},
		},
		{
			verb: "largest", usage: "LIST", does: "prints the largest NOUN, or none", list: true,
			lines: choose(">"), call: climbing, want: best(more),
			flaws: []flaw{swap(WrongOperator, 5, " > ", " < "), swap(OffByOne, 4, " <= ", " < "), missing(2)},
		},
		{
			verb: "smallest", usage: "LIST", does: "prints the smallest NOUN, or none", list: true,
			lines: choose("<"), call: falling, want: best(less),
			flaws: []flaw{swap(WrongOperator, 5, " < ", " > "), swap(OffByOne, 4, " <= ", " < "), missing(2)},
		},
		{
			verb: "upto", usage: "FIRST LAST", does: "prints the NOUNs from the first to the last one, both included",
			parameters: ab, lines: step("<="), call: bounds, want: steps(0),
			flaws: []flaw{swap(OffByOne, 2, " <= ", " < ")},
		},
		{
			verb: "below", usage: "FIRST END", does: "prints the NOUNs from the first one on that are below the end",
			parameters: ab, lines: step("<"), call: bounds, want: steps(1),
			flaws: []flaw{swap(OffByOne, 2, " < ", " <= ")},
		},
		{
			verb: "left", usage: "A B", does: "takes the second NOUN from the first",
			parameters: ab, lines: plain("a, b", "a - b"), call: pair, want: difference(0, 1),
			flaws: []flaw{swap(SwappedArguments, 1, "a - b", "b - a")},
		},
		{
			verb: "since", usage: "A B", does: "takes the first NOUN from the second",
			parameters: ab, lines: plain("a, b", "b - a"), call: pair, want: difference(1, 0),
			flaws: []flaw{swap(SwappedArguments, 1, "b - a", "a - b")},
		},
		{
			verb: "prefix", usage: "TEXT N", does: "prints as many letters of a NOUN as it is told",
			parameters: []string{"text", "n"}, lines: plain("text, n", "substr(text, 1, n)"), call: long, want: prefix,
			flaws: []flaw{swap(SwappedArguments, 1, "1, n", "n, 1")},
		},
		{
			verb: "letter", usage: "TEXT N", does: "prints one letter of a NOUN, by its number",
			parameters: []string{"text", "n"}, lines: plain("text, n", "substr(text, n, 1)"), call: long, want: letter,
			flaws: []flaw{swap(SwappedArguments, 1, "n, 1", "1, n")},
		},
		{
			verb: "within", usage: "NUMBER LOW HIGH", does: "says whether a NOUN is from low to high, both included",
			parameters: []string{"x", "low", "high"}, lines: choice("x >= low && x <= high"), call: atLow, want: within,
			flaws: []flaw{swap(OffByOne, 2, " >= ", " > ")},
		},
		{
			verb: "outside", usage: "NUMBER LOW HIGH", does: "says whether a NOUN is below low or above high",
			parameters: []string{"x", "low", "high"}, lines: choice("x < low || x > high"), call: atLow, want: outside,
			flaws: []flaw{swap(OffByOne, 2, " < ", " <= ")},
		},
		{
			verb: "seconds", usage: "UNIT", does: "says how long a NOUN is in s, m, h or d", parameters: []string{"unit"},
			lines: []string{
				"function FUNC(unit,   NOUN) {", "\tNOUN = \"\"", "\tif (unit == \"s\") return 1",
				"\tif (unit == \"m\") return 60", "\tif (unit == \"h\") return 3600", "\tif (unit == \"d\") return 86400",
				"\treturn NOUN", "}",
			},
			call: unit, want: seconds,
			flaws: []flaw{missing(2, "s"), missing(3, "m"), missing(4, "h"), missing(5, "d")},
		},
		{
			verb: "sign", usage: "NUMBER", does: "says whether a NOUN is minus, zero or plus", parameters: []string{"x"},
			lines: []string{
				"function FUNC(x,   NOUN) {", "\tNOUN = \"plus\"", "\tif (x < 0) return \"minus\"",
				"\tif (x == 0) return \"zero\"", "\treturn NOUN", "}",
			},
			call: signed, want: sign,
			flaws: []flaw{swap(WrongOperator, 2, " < ", " > "), missing(3, "0")},
		},
	}
}
