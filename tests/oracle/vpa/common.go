package main

import (
	"fmt"
	"math"
	"reflect"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/features"
	"k8s.io/component-base/featuregate"
	sigsjson "sigs.k8s.io/json"
)

// unmarshal decodes JSON as the API machinery does: names are case-sensitive, integers stay exact.
func unmarshal(data []byte, into any) error {
	return sigsjson.UnmarshalCaseSensitivePreserveInts(data, into)
}

// atVirtualTime runs f in a bubble of virtual time that starts at now. Upstream reads the clock with time.Now();
// the bubble answers it, and time passes only while every goroutine of the bubble waits.
func atVirtualTime(now time.Time, f func() error) (err error) {
	var t testing.T
	synctest.Test(&t, func(*testing.T) {
		defer func() {
			if cause := recover(); cause != nil {
				err = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
			}
		}()
		time.Sleep(time.Until(now))
		err = f()
	})
	return err
}

// withGates sets all feature gates that a case can name for the duration of f; one that is not named is off.
func withGates(gates map[string]bool, f func() error) error {
	wanted := map[string]bool{}
	for _, feature := range []featuregate.Feature{features.InPlace, features.PerVPAConfig, features.CPUStartupBoost} {
		if enabled := gates[string(feature)]; features.Enabled(feature) != enabled {
			wanted[string(feature)] = enabled
		}
	}
	if len(wanted) > 0 {
		if err := features.MutableFeatureGate.SetFromMap(wanted); err != nil {
			return err
		}
	}
	return f()
}

// private points at an unexported field of a struct of upstream's. It panics if a version has no such field.
func private[T any](object any, name string) *T {
	structure := reflect.ValueOf(object)
	for structure.Kind() == reflect.Interface || structure.Kind() == reflect.Pointer {
		structure = structure.Elem()
	}
	field := structure.FieldByName(name)
	if !field.IsValid() || field.Type() != reflect.TypeFor[T]() {
		panic(fmt.Sprintf("%s has no field %s of type %s", structure.Type(), name, reflect.TypeFor[T]()))
	}
	return (*T)(unsafe.Pointer(field.UnsafeAddr()))
}

// hex prints the exact binary64.
func hex(value float64) string {
	return strconv.FormatFloat(value, 'x', -1, 64)
}

// float prints as a JSON number that every reader takes for a float.
type float float64

func (f float) MarshalJSON() ([]byte, error) {
	text := strconv.FormatFloat(float64(f), 'g', -1, 64)
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return []byte(text), nil
}

type number struct {
	Value any    `json:"value"`
	Hex   string `json:"hex"`
}

func exact(value float64) number {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return number{strconv.FormatFloat(value, 'g', -1, 64), strconv.FormatFloat(value, 'g', -1, 64)}
	}
	return number{float(value), hex(value)}
}

// timeText prints a time; the zero time is null.
func timeText(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	text := t.UTC().Format(time.RFC3339Nano)
	return &text
}

func seconds(value float64) time.Duration {
	return time.Duration(value * float64(time.Second))
}
