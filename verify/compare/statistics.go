package compare

import (
	"math"
	"math/rand/v2"
	"slices"
)

// mcNemar returns the two-sided p-value of the exact mcNemar test (1947): how likely it is that pairs that disagree
// are split at least as unevenly as b against c, if both ways are equally likely. It is 1 if no pair disagrees.
func mcNemar(b, c int) float64 {
	n, least := b+c, min(b, c)
	total, _ := math.Lgamma(float64(n + 1))
	p := 0.0
	for k := range least + 1 {
		in, _ := math.Lgamma(float64(k + 1))
		out, _ := math.Lgamma(float64(n - k + 1))
		p += math.Exp(total - in - out - float64(n)*math.Ln2)
	}
	return min(1, 2*p)
}

// resamples is the number of samples of a bootstrap interval.
const resamples = 10000

// bootstrap returns the 95% percentile interval of the mean of differences, by drawing as many of them with
// replacement (Efron 1979). The same differences always give the same interval.
func bootstrap(differences []float64) (low, high float64) {
	n := len(differences)
	if n == 0 {
		return 0, 0
	}
	random := rand.New(rand.NewPCG(1, uint64(n)))
	means := make([]float64, resamples)
	for i := range means {
		for range n {
			means[i] += differences[random.IntN(n)]
		}
		means[i] /= float64(n)
	}
	slices.Sort(means)
	return quantile(means, .025), quantile(means, .975)
}

// quantile interpolates between the two sorted values around a share of them.
func quantile(sorted []float64, share float64) float64 {
	at := share * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}
