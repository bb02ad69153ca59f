package trainertest

import (
	"context"
	"path/filepath"
	"strings"
)

func (s *Server) write(m *model, f *future) (any, error) {
	address := "tinker://" + f.model + "/weights/" + f.body.Path
	if err := m.policy.Save(context.Background(), fileName(address)); err != nil {
		return nil, err
	}
	s.saved[address] = checkpoint{kind: "training", rank: m.rank}
	return map[string]any{"path": address, "type": f.operation}, nil
}

func (s *Server) publish(m *model, f *future) (any, error) {
	policy, err := m.policy.Publish(context.Background())
	if err != nil {
		return nil, err
	}
	session := samplingSession{model: f.model, policy: policy}
	if _, ok := s.takeFault(stale); ok {
		session.policy, session.stale = s.samplers[m.loaded].policy, true
		policy = m.exported
	}
	address := "tinker://" + f.model + "/sampler_weights/" + f.body.Path
	s.saved[address] = checkpoint{kind: "sampler", rank: m.rank, policy: policy, owner: m}
	if f.body.SamplingNumber == nil {
		m.exported, s.exports[address] = policy, s.saved[address]
		return map[string]any{"path": "tinker://" + f.model + "/" + f.body.Path, "type": f.operation,
			"sampling_session_id": nil}, nil
	}
	if s.options.LoRASync != "" {
		s.exports[address] = s.saved[address]
		if err := s.writeAdapter(filepath.Join(s.options.LoRASync, f.model), address); err != nil {
			return nil, err
		}
	}
	id := s.id("sampling")
	if _, ok := s.takeFault(idle + f.operation); ok {
		id = m.loaded
	} else {
		s.samplers[id], s.latest = session, id
	}
	return map[string]any{"path": nil, "type": f.operation, "sampling_session_id": id}, nil
}

// fileName is the policy's name for a checkpoint.
func fileName(address string) string {
	return strings.NewReplacer("tinker://", "", "/", "-").Replace(address)
}
