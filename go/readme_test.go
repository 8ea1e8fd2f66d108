package ebbtide_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestTheExampleOfTheReadmeRemembersOverRuns(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	check(t, err)
	source, err := os.ReadFile("examples/lines/main.go")
	check(t, err)
	_, code, _ := strings.Cut(string(source), "\n")
	expect(t, "README.md has it", strings.Contains(string(readme), "```go\n"+code+"```\n"), true)
	program := t.TempDir() + "/lines"
	out, err := exec.Command("go", "build", "-o", program, "./examples/lines").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	home := t.TempDir()
	for _, expected := range []string{"a\nb\n", ""} {
		command := exec.Command(program)
		command.Dir = home
		expect(t, "what it prints", run(t, command, "a\nb\na\n"), expected)
	}
}
