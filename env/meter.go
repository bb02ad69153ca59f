package env

import (
	"context"
	"sync"
	"time"
)

// Meter is a provider that measures how long the sandboxes of another one take to start, including the time that they
// wait for room, a quota or an image.
type Meter struct {
	Provider

	mu       sync.Mutex
	starting map[*time.Time]bool // when each start under way began
	started  int
	failed   int
	sum, max time.Duration
}

// NewMeter returns a meter for a provider, which it closes.
func NewMeter(p Provider) *Meter { return &Meter{Provider: p, starting: map[*time.Time]bool{}} }

// Start starts a sandbox, and counts it.
func (m *Meter) Start(ctx context.Context, s Spec) (Sandbox, error) {
	begun := time.Now()
	m.mu.Lock()
	m.starting[&begun] = true
	m.mu.Unlock()
	sandbox, err := m.Provider.Start(ctx, s)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.starting, &begun)
	if err != nil {
		m.failed++
		return sandbox, err
	}
	took := time.Since(begun)
	m.started++
	m.sum, m.max = m.sum+took, max(m.max, took)
	return sandbox, nil
}

// Gauges returns metrics of the starts since its last call, and how many are under way. The longest of these counts
// for the maximum.
func (m *Meter) Gauges() map[string]float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	longest := m.max
	for begun := range m.starting {
		longest = max(longest, time.Since(*begun))
	}
	values := map[string]float64{
		"sandboxes/started": float64(m.started), "sandboxes/failed": float64(m.failed),
		"sandboxes/starting": float64(len(m.starting)), "sandboxes/start_max": longest.Seconds(),
	}
	if m.started > 0 {
		values["sandboxes/start_mean"] = m.sum.Seconds() / float64(m.started)
	}
	m.started, m.failed, m.sum, m.max = 0, 0, 0, 0
	return values
}
