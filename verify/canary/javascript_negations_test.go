package canary

import "testing"

func TestJavaScriptNegations(t *testing.T) {
	t.Parallel()
	for check, want := range map[string]string{
		"expect(f).toThrow(RangeError)":                "expect(f).not.toThrow(RangeError)",
		"expect(f()).not.toBe(3)":                      "expect(f()).toBe(3)",
		"await expect(f()).rejects.toThrow('gone')":    "await expect(f()).rejects.not.toThrow('gone')",
		"expect(list).to.be.an('array').that.is.empty": "expect(list).to.be.an('array').that.is.not.empty",
		"expect(f()).to.be.true":                       "expect(f()).to.be.not.true",
		"expect(f()).to.not.exist":                     "expect(f()).to.exist",
		"f().should.be.above(3)":                       "f().should.be.not.above(3)",
		"should.not.exist(err)":                        "should.exist(err)",
		"assert(f(1, [2]), 'why')":                     "assert(!(f(1, [2])), 'why')",
		"assert.ok(f() || g)":                          "assert.ok(!(f() || g))",
		"assert.isTrue(f())":                           "assert.isNotTrue(f())",
		"t.true(f())":                                  "t.true(!(f()))",
		"expect.assertions(2)":                         "",
		"expect(x).toEqual(expect.any(Number)) || f()": "expect(x).not.toEqual(expect.any(Number)) || f()",
		"list.push(3)":                                 "",
	} {
		head := "it('works', async () => {\n  "
		s, err := JavaScript{}.parse(Source{"a.test.js", []byte(head + check + "\n})\n")})
		if err != nil {
			t.Fatal(err)
		}
		f := s.(*jsFile)
		got := ""
		for i := len(f.tokens) - 1; i >= 0 && got == ""; i-- {
			if from, to, text := f.negation(i); text != "" {
				got = string(apply(f.data, []edit{{from, to, text}}))
			}
		}
		if want != "" {
			want = head + want + "\n})\n"
		}
		if got != want {
			t.Errorf("%s becomes %q, want %q", check, got, want)
		}
	}
}

// A test that compares nothing with a value can only be negated, which gives it away.
func TestNewNegates(t *testing.T) {
	t.Parallel()
	set, err := New(JavaScript{}, Options{
		Tests: []string{"a type"}, Rand: random(1),
		Sources: []Source{{"a.spec.js", []byte("it('a type', () => {\n  expect(() => f(3)).to.throw(TypeError)\n})\n")}},
	})
	if err != nil || len(set.Canaries) != 1 || set.Canaries[0].Kind != Telling {
		t.Errorf("%+v, %v", set.Canaries, err)
	}
}
