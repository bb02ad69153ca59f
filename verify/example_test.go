package verify_test

import (
	"fmt"

	"deepswe/env"
	"deepswe/verify"
)

// The log of a test run is graded by the rules of the official harness, and by a stricter reading.
func ExampleGradeLog() {
	task := env.Task{ID: "shelf-7", Tests: env.Tests{
		Parser: "parse_log_pytest", EvalType: verify.PassAndFail,
		FailToPass: []string{"test_shelf.py::test_add"}, PassToPass: []string{"test_shelf.py::test_sort"},
	}}
	log := `>>>>> Start Test Output
PASSED test_shelf.py::test_add
FAILED test_shelf.py::test_sort
>>>>> End Test Output
`
	grade, err := verify.GradeLog(task, verify.Evidence{Log: []byte(log)})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("resolved:", grade.Report.Resolved)
	fmt.Println("fixed:", grade.Report.Tests.FailToPass.Success)
	fmt.Println("broken:", grade.Report.Tests.PassToPass.Failure)
	// Output:
	// resolved: false
	// fixed: [test_shelf.py::test_add]
	// broken: [test_shelf.py::test_sort]
}
