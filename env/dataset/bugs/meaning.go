package bugs

import (
	"math/rand/v2"
	"strconv"
	"strings"
)

// What the functions print, and arguments for them.

func atoi(s string) int {
	n, _ := strconv.Atoi(s) // the arguments are made here
	return n
}

func numbers(ns ...int) []string {
	out := make([]string, len(ns))
	for i, n := range ns {
		out[i] = strconv.Itoa(n)
	}
	return out
}

// several returns four different numbers, of which neither the largest nor the smallest is at an end.
func several(r *rand.Rand) []string {
	low, high := 2+r.IntN(5), 20+r.IntN(9)
	first, last := 8+r.IntN(5), 14+r.IntN(5)
	if r.IntN(2) == 0 {
		low, high = high, low
	}
	return numbers(first, low, high, last)
}

// climbing returns three numbers in ascending order, and falling three in descending order.
func climbing(r *rand.Rand) []string {
	n := 2 + r.IntN(9)
	return numbers(n, n+1+r.IntN(5), n+6+r.IntN(5))
}

func falling(r *rand.Rand) []string {
	n := 20 + r.IntN(9)
	return numbers(n, n-1-r.IntN(5), n-6-r.IntN(5))
}

// mixed returns two even numbers and one odd, or two odd numbers and one even.
func mixed(r *rand.Rand) []string {
	n := 2 * (1 + r.IntN(9))
	if r.IntN(2) == 0 {
		n++
	}
	return numbers(n, n+2, n+5)
}

func pair(r *rand.Rand) []string { return numbers(9+r.IntN(9), 1+r.IntN(7)) }

func words(r *rand.Rand) []string {
	all := []string{"ab", "cd", "ef", "gh", "jk", "mn", "pq", "st", "vw", "xy"}
	i := r.IntN(len(all))
	return []string{all[i], all[(i+1+r.IntN(len(all)-1))%len(all)]}
}

func bounds(r *rand.Rand) []string {
	low := 1 + r.IntN(9)
	return numbers(low, low+2+r.IntN(3))
}

// atLow returns arguments for a program that limits a number: the number, which is the lower bound, and both bounds.
func atLow(r *rand.Rand) []string {
	low := 2 + r.IntN(9)
	return numbers(low, low, low+3+r.IntN(5))
}

func total(args []string) string {
	sum := 0
	for _, a := range args {
		sum += atoi(a)
	}
	return strconv.Itoa(sum)
}

func product(args []string) string {
	p := 1
	for _, a := range args {
		p *= atoi(a)
	}
	return strconv.Itoa(p)
}

// best returns a function that returns the number that comes before all others.
func best(before func(a, b int) bool) func([]string) string {
	return func(args []string) string {
		if len(args) == 0 {
			return "none"
		}
		n := atoi(args[0])
		for _, a := range args {
			if before(atoi(a), n) {
				n = atoi(a)
			}
		}
		return strconv.Itoa(n)
	}
}

func less(a, b int) bool { return a < b }
func more(a, b int) bool { return a > b }

func even(n int) bool { return n%2 == 0 }
func odd(n int) bool  { return n%2 != 0 }

func count(when func(int) bool) func([]string) string {
	return func(args []string) string {
		n := 0
		for _, a := range args {
			if when(atoi(a)) {
				n++
			}
		}
		return strconv.Itoa(n)
	}
}

// steps returns a function that lists the numbers from the first argument up to the second minus below.
func steps(below int) func([]string) string {
	return func(args []string) string {
		var all []string
		for n := atoi(args[0]); n <= atoi(args[1])-below; n++ {
			all = append(all, strconv.Itoa(n))
		}
		return strings.Join(all, " ")
	}
}

func difference(from, less int) func([]string) string {
	return func(args []string) string { return strconv.Itoa(atoi(args[from]) - atoi(args[less])) }
}

func joined(first, second int) func([]string) string {
	return func(args []string) string { return args[first] + ":" + args[second] }
}

func yes(ok bool) string {
	if ok {
		return "yes"
	}
	return "no"
}

func within(args []string) string {
	x := atoi(args[0])
	return yes(x >= atoi(args[1]) && x <= atoi(args[2]))
}

func outside(args []string) string {
	x := atoi(args[0])
	return yes(x < atoi(args[1]) || x > atoi(args[2]))
}

func seconds(args []string) string {
	return map[string]string{"s": "1", "m": "60", "h": "3600", "d": "86400"}[args[0]]
}

func unit(r *rand.Rand) []string { return []string{[]string{"s", "m", "h", "d"}[r.IntN(4)]} }

func sign(args []string) string {
	switch n := atoi(args[0]); {
	case n < 0:
		return "minus"
	case n == 0:
		return "zero"
	}
	return "plus"
}

func signed(r *rand.Rand) []string { return numbers(-1 - r.IntN(9)) }

func prefix(args []string) string { return args[0][:atoi(args[1])] }

func letter(args []string) string { return args[0][atoi(args[1])-1 : atoi(args[1])] }

// long returns a word and a number from 2 to 4.
func long(r *rand.Rand) []string {
	all := []string{"harbour", "meadow", "lantern", "pebble", "thistle", "window"}
	return []string{all[r.IntN(len(all))], strconv.Itoa(2 + r.IntN(3))}
}
