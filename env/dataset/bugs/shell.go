package bugs

func shell() []piece {
	loop := func(start, body, end string) []string {
		return []string{
			"FUNC() {", "\t" + start, "\tfor NOUN in \"$@\"; do", "\t\t" + body, "\tdone", "\techo \"$" + end + "\"", "}",
		}
	}
	choose := func(operator string) []string {
		return []string{
			"FUNC() {", "\t[ $# -gt 0 ] || { echo none; return; }", "\tbest=$1", "\tfor NOUN in \"$@\"; do",
			"\t\tif [ \"$NOUN\" " + operator + " \"$best\" ]; then", "\t\t\tbest=$NOUN", "\t\tfi", "\tdone",
			"\techo \"$best\"", "}",
		}
	}
	step := func(operator string) []string {
		return []string{
			"FUNC() {", "\tNOUN=$1", "\tout=$1", "\twhile [ $((NOUN + 1)) " + operator + " \"$2\" ]; do",
			"\t\tNOUN=$((NOUN + 1))", "\t\tout=\"$out $NOUN\"", "\tdone", "\techo \"$out\"", "}",
		}
	}
	plain := func(value string) []string { return []string{"FUNC() {", "\tNOUN=" + value, "\techo \"$NOUN\"", "}"} }
	choice := func(condition string) []string {
		return []string{
			"FUNC() {", "\tNOUN=no", "\tif " + condition + "; then", "\t\tNOUN=yes", "\tfi", "\techo \"$NOUN\"", "}",
		}
	}
	return []piece{
		{
			verb: "total", usage: "NUMBER...", does: "adds up the NOUNs that it is given",
			lines: loop("sum=0", "sum=$((sum + NOUN))", "sum"), call: several, want: total,
			flaws: []flaw{swap(WrongOperator, 3, " + ", " - "), swap(OffByOne, 1, "=0", "=1")},
		},
		{
			verb: "product", usage: "NUMBER...", does: "multiplies the NOUNs that it is given",
			lines: loop("all=1", "all=$((all * NOUN))", "all"), call: several, want: product,
			flaws: []flaw{swap(WrongOperator, 3, " * ", " + "), swap(OffByOne, 1, "=1", "=0")},
		},
		{
			verb: "evens", usage: "NUMBER...", does: "counts the NOUNs that are even",
			lines: loop("count=0", "[ $((NOUN % 2)) -eq 0 ] && count=$((count + 1))", "count"), call: mixed, want: count(even),
			flaws: []flaw{swap(WrongOperator, 3, " -eq ", " -ne "), swap(OffByOne, 1, "=0", "=1")},
		},
		{
			verb: "odds", usage: "NUMBER...", does: "counts the NOUNs that are odd",
			lines: loop("count=0", "[ $((NOUN % 2)) -ne 0 ] && count=$((count + 1))", "count"), call: mixed, want: count(odd),
			flaws: []flaw{swap(WrongOperator, 3, " -ne ", " -eq "), swap(OffByOne, 1, "=0", "=1")},
		},
		{
			verb: "largest", usage: "[NUMBER...]", does: "prints the largest NOUN, or none",
			lines: choose("-gt"), call: several, want: best(more),
			flaws: []flaw{swap(WrongOperator, 4, " -gt ", " -lt "), missing(1)},
		},
		{
			verb: "smallest", usage: "[NUMBER...]", does: "prints the smallest NOUN, or none",
			lines: choose("-lt"), call: several, want: best(less),
			flaws: []flaw{swap(WrongOperator, 4, " -lt ", " -gt "), missing(1)},
		},
		{
			verb: "upto", usage: "FIRST LAST", does: "prints the NOUNs from the first to the last one, both included",
			lines: step("-le"), call: bounds, want: steps(0),
			flaws: []flaw{swap(OffByOne, 3, " -le ", " -lt ")},
		},
		{
			verb: "below", usage: "FIRST END", does: "prints the NOUNs from the first one on that are below the end",
			lines: step("-lt"), call: bounds, want: steps(1),
			flaws: []flaw{swap(OffByOne, 3, " -lt ", " -le ")},
		},
		{
			verb: "left", usage: "A B", does: "takes the second NOUN from the first",
			lines: plain("$(($1 - $2))"), call: pair, want: difference(0, 1),
			flaws: []flaw{swap(SwappedArguments, 1, "$1 - $2", "$2 - $1"), swap(WrongOperator, 1, " - ", " + ")},
		},
		{
			verb: "since", usage: "A B", does: "takes the first NOUN from the second",
			lines: plain("$(($2 - $1))"), call: pair, want: difference(1, 0),
			flaws: []flaw{swap(SwappedArguments, 1, "$2 - $1", "$1 - $2"), swap(WrongOperator, 1, " - ", " + ")},
		},
		{
			verb: "label", usage: "A B", does: "prints the first NOUN, a colon and the second",
			lines: plain("$1:$2"), call: words, want: joined(0, 1),
			flaws: []flaw{swap(SwappedArguments, 1, "$1:$2", "$2:$1")},
		},
		{
			verb: "turned", usage: "A B", does: "prints the second NOUN, a colon and the first",
			lines: plain("$2:$1"), call: words, want: joined(1, 0),
			flaws: []flaw{swap(SwappedArguments, 1, "$2:$1", "$1:$2")},
		},
		{
			verb: "within", usage: "NUMBER LOW HIGH", does: "says whether a NOUN is from low to high, both included",
			lines: choice(`[ "$1" -ge "$2" ] && [ "$1" -le "$3" ]`), call: atLow, want: within,
			flaws: []flaw{swap(OffByOne, 2, " -ge ", " -gt ")},
		},
		{
			verb: "outside", usage: "NUMBER LOW HIGH", does: "says whether a NOUN is below low or above high",
			lines: choice(`[ "$1" -lt "$2" ] || [ "$1" -gt "$3" ]`), call: atLow, want: outside,
			flaws: []flaw{swap(OffByOne, 2, " -lt ", " -le ")},
		},
		{
			verb: "seconds", usage: "UNIT", does: "says how long a NOUN is in s, m, h or d",
			lines: []string{
				"FUNC() {", "\tNOUN=$1", "\tcase $NOUN in", "\ts) echo 1 ;;", "\tm) echo 60 ;;", "\th) echo 3600 ;;",
				"\td) echo 86400 ;;", "\tesac", "}",
			},
			call: unit, want: seconds,
			flaws: []flaw{missing(3, "s"), missing(4, "m"), missing(5, "h"), missing(6, "d")},
		},
		{
			verb: "sign", usage: "NUMBER", does: "says whether a NOUN is minus, zero or plus",
			lines: []string{
				"FUNC() {", "\tNOUN=plus", "\t[ \"$1\" -lt 0 ] && { echo minus; return; }",
				"\t[ \"$1\" -eq 0 ] && { echo zero; return; }", "\techo \"$NOUN\"", "}",
			},
			call: signed, want: sign,
			flaws: []flaw{swap(WrongOperator, 2, " -lt ", " -gt "), missing(3, "0")},
		},
	}
}
