// Oracle answers questions with the packages of the Vertical Pod Autoscaler: JSON lines in, JSON lines out.
//
// A request is {"id": ..., "kind": ..., "input": ...}. The response has the same id and either an output or an error.
// An error means that the question could not be asked; an error that the Vertical Pod Autoscaler reports is part of an output.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

type request struct {
	ID    json.RawMessage `json:"id"`
	Kind  string          `json:"kind"`
	Input json.RawMessage `json:"input"`
}

type response struct {
	ID     json.RawMessage `json:"id"`
	Output any             `json:"output,omitempty"`
	Error  string          `json:"error,omitempty"`
}

type answerer func(input json.RawMessage) (any, error)

var kinds = map[string]answerer{}

// register adds a kind of question. Called by init functions.
func register(kind string, answer answerer) {
	if _, ok := kinds[kind]; ok {
		panic("two answerers for kind " + kind)
	}
	kinds[kind] = answer
}

func main() {
	klog.SetLogger(logr.Discard())
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve answers every line of in. Output is flushed whenever no further request is waiting.
func serve(in io.Reader, out io.Writer) error {
	reader := bufio.NewReaderSize(in, 1<<20)
	writer := bufio.NewWriterSize(out, 1<<20)
	encoder := json.NewEncoder(writer)
	encoder.SetEscapeHTML(false)
	for {
		line, err := reader.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			if err := encoder.Encode(respond(line)); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return writer.Flush()
		}
		if err != nil {
			return err
		}
		if reader.Buffered() == 0 {
			if err := writer.Flush(); err != nil {
				return err
			}
		}
	}
}

func respond(line []byte) (result response) {
	var asked request
	if err := json.Unmarshal(line, &asked); err != nil {
		return response{Error: err.Error()}
	}
	result.ID = asked.ID
	answer, ok := kinds[asked.Kind]
	if !ok {
		result.Error = fmt.Sprintf("unknown kind %q", asked.Kind)
		return result
	}
	defer func() {
		if reason := recover(); reason != nil {
			result = response{ID: asked.ID, Error: fmt.Sprintf("panic: %v\n%s", reason, debug.Stack())}
		}
	}()
	output, err := answer(asked.Input)
	if err != nil {
		result.Error = err.Error()
		return result
	}
	result.Output = output
	return result
}

// decodeStrictly reads a question and refuses fields that nobody reads.
func decodeStrictly(input json.RawMessage, target any) error {
	decoder := json.NewDecoder(bytes.NewReader(input))
	decoder.DisallowUnknownFields()
	return decoder.Decode(target)
}
