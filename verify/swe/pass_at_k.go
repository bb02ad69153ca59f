package swe

import "math"

// Attempts counts the attempts at one task, except those that ended with an infrastructure failure.
type Attempts struct {
	Task   string
	Made   int
	Solved int
}

// PassAtK estimates the probability that at least one of k attempts solves a task, given that c of n attempts did:
// 1 - C(n-c, k) / C(n, k), the unbiased estimator of Chen et al. 2021 ("Evaluating Large Language Models Trained on
// Code"). It requires 0 <= c <= n and 1 <= k <= n.
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
	// Tasks is the number of tasks with at least K attempts; only they count.
	Tasks int     `json:"tasks"`
	Rate  float64 `json:"rate"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// PassRate returns the mean of PassAtK over the tasks.
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

// MeanRate returns the mean of the tasks' rates with k attempts each; made is how many attempts were made in total.
// The interval treats the tasks as the sample: it is the Wilson score interval (1927) for a proportion, with Kish's
// effective sample size, which is the number of draws that would have the observed standard error. Unlike the
// normal approximation, it does not shrink to a point if all tasks are solved or none is.
func MeanRate(k int, rates []float64, made int) Estimate {
	e := Estimate{K: k, Tasks: len(rates)}
	for _, r := range rates {
		e.Rate += r / float64(len(rates))
	}
	e.Rate = min(e.Rate, 1)
	e.Low, e.High = Wilson(e.Rate, effective(rates, e.Rate, float64(made)/float64(k)))
	return e
}

// effective returns the number of independent draws of a proportion p that would estimate it as precisely as these
// rates do. It is at most most, the number of disjoint groups of k attempts.
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

// Wilson returns the 95% score interval of a proportion p in n draws (Wilson 1927); [0, 1] if n is 0.
func Wilson(p, n float64) (low, high float64) {
	if n == 0 {
		return 0, 1
	}
	const z = 1.959963984540054
	middle := (p + z*z/(2*n)) / (1 + z*z/n)
	half := z / (1 + z*z/n) * math.Sqrt(p*(1-p)/n+z*z/(4*n*n))
	return max(0, middle-half), min(1, middle+half)
}

// Split groups tasks by how many of their attempts solved them. A policy can learn only from the second group.
type Split struct {
	Never     []string `json:"never"`
	Sometimes []string `json:"sometimes"`
	Always    []string `json:"always"`
}

// splitTasks groups the tasks with at least one attempt, in order.
func splitTasks(tasks []Attempts) Split {
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
