package tinker_test

import (
	"testing"

	"deepswe/env/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }
