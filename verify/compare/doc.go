// Package compare compares runs that played or graded the same tasks: which tasks one solves and another does not, and
// how surely one is better. It refuses runs that are not comparable, and says why.
package compare
