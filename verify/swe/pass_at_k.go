package swe

import "math"

// Attempts counts the attempts at one task. Those that ended with an infrastructure failure are not counted.
type Attempts struct {
	Task   string
	Made   int
	Solved int
}

// PassAtK is the probability that at least one of k attempts, drawn without replacement from n attempts of which c
// solved the task, is one that did: 1 - C(n-c, k) / C(n, k), the unbiased estimate of Chen et al. 2021 ("Evaluating
// Large Language Models Trained on Code"). It requires 0 <= c <= n and 1 <= k <= n.
func PassAtK(n, c, k int) float64 {
	if n-c < k {
		return 1
	}
	miss := 1.0
	for i := n - c + 1; i <= n; i++ {
		miss *= 1 - float64(k)/float64(i)
	}
	return 1 - miss
}

// Estimate is a rate over tasks with its 95% confidence interval.
type Estimate struct {
	K int `json:"k"`
	// Tasks is how many tasks had at least K attempts: only those count.
	Tasks int     `json:"tasks"`
	Rate  float64 `json:"rate"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// PassRate is the mean of PassAtK over the tasks.
func PassRate(tasks []Attempts, k int) Estimate {
	var rates []float64
	made := 0
	for _, t := range tasks {
		if t.Made >= k {
			rates = append(rates, PassAtK(t.Made, t.Solved, k))
			made += t.Made
		}
	}
	return MeanRate(k, rates, made)
}

// MeanRate is the mean of the tasks' rates with k of their attempts, of which made were made in all. Its interval
// treats the tasks as the sample: it is the score interval of Wilson 1927 for a share, with the number of draws that
// would have the standard error that the tasks have among themselves (Kish's effective sample size). Unlike the normal
// approximation it does not shrink to a point where every task is solved or none.
func MeanRate(k int, rates []float64, made int) Estimate {
	e := Estimate{K: k, Tasks: len(rates)}
	for _, r := range rates {
		e.Rate += r / float64(len(rates))
	}
	e.Rate = min(e.Rate, 1)
	e.Low, e.High = Wilson(e.Rate, effective(rates, e.Rate, float64(made)/float64(k)))
	return e
}

// effective is the number of independent draws of a share p that would estimate it as closely as these rates do. There
// cannot be more than most: the disjoint groups of k attempts that were made.
func effective(rates []float64, p, most float64) float64 {
	n := float64(len(rates))
	spread := 0.0
	for _, r := range rates {
		spread += (r - p) * (r - p)
	}
	if p <= 0 || p >= 1 || n < 2 {
		return n
	}
	if spread == 0 {
		return most
	}
	return min(most, p*(1-p)*n*(n-1)/spread)
}

// Wilson is the 95% score interval of a share p of n draws (Wilson 1927): everything, where n is 0.
func Wilson(p, n float64) (low, high float64) {
	if n == 0 {
		return 0, 1
	}
	const z = 1.959963984540054
	middle := (p + z*z/(2*n)) / (1 + z*z/n)
	half := z / (1 + z*z/n) * math.Sqrt(p*(1-p)/n+z*z/(4*n*n))
	return max(0, middle-half), min(1, middle+half)
}

// Split sorts tasks by how many of their attempts solved them. The second list is what a policy can learn from.
type Split struct {
	Never     []string `json:"never"`
	Sometimes []string `json:"sometimes"`
	Always    []string `json:"always"`
}

// SplitTasks sorts the tasks that at least one attempt was made at, in their order.
func SplitTasks(tasks []Attempts) Split {
	s := Split{Never: []string{}, Sometimes: []string{}, Always: []string{}}
	for _, t := range tasks {
		switch {
		case t.Made == 0:
		case t.Solved == 0:
			s.Never = append(s.Never, t.Task)
		case t.Solved == t.Made:
			s.Always = append(s.Always, t.Task)
		default:
			s.Sometimes = append(s.Sometimes, t.Task)
		}
	}
	return s
}
