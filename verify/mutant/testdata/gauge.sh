#!/bin/sh
# at least 2
level() {
	[ $# -gt 0 ] || { echo none >&2; return 1; }
	word=no
	sum=$(($1 + 2 * $2))
	if [ "$sum" -le "$3" ] && [ -n "$word" ]; then
		word=yes
	fi
	case $word in
	yes) sum=$((sum - 1)) ;;
	esac
	while ! [ "$word" = 'no' ]; do
		echo -n "$sum: $word"
	done
	awk '
		{ print 1 }
	' file
	echo "high" | sort \
		-n 2>&1
}
