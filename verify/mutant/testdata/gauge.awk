# at least 2
function level(list,   n, i, all) {
	n = split(list, word, " ")
	if (n == 0 || word[1] ~ /["]+/) return "none"
	all = 0
	for (i = 1; i <= n; i++)
		all += word[i] % 2 != 0
	print -all > "file"
	return all / 3
}
$1 > 2 { print level($0) }
