package main

import (
	"fmt"
	"reflect"
	"time"
	"unsafe"
)

// private points at an unexported field of a struct of upstream's. It panics if a version has no such field.
func private[T any](object any, name string) *T {
	field := privateField(reflect.ValueOf(object).Elem(), name)
	if field.Type() != reflect.TypeFor[T]() {
		panic(fmt.Sprintf("field %s of %T is a %s, not a %s", name, object, field.Type(), reflect.TypeFor[T]()))
	}
	return field.Addr().Interface().(*T)
}

func privateField(structure reflect.Value, name string) reflect.Value {
	field := structure.FieldByName(name)
	if !field.IsValid() {
		panic(fmt.Sprintf("%s has no field %s", structure.Type(), name))
	}
	return reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem()
}

// history is one list of the controller's: map[key][]struct{number int32, timestamp time.Time[, outdated bool]}.
type history struct {
	lists reflect.Value
	key   reflect.Value
}

func privateHistory(controller any, name, key string) history {
	return history{privateField(reflect.ValueOf(controller).Elem(), name), reflect.ValueOf(key)}
}

type historySlot struct{ structure reflect.Value }

func (h history) each(f func(historySlot)) {
	list := h.lists.MapIndex(h.key)
	if !list.IsValid() {
		return
	}
	for i := range list.Len() {
		f(historySlot{list.Index(i)})
	}
}

// set replaces the list by one of n slots. An empty list differs from none: the controller then has seen the object.
func (h history) set(n int, f func(int, historySlot)) {
	list := reflect.MakeSlice(h.lists.Type().Elem(), n, n)
	for i := range n {
		f(i, historySlot{list.Index(i)})
	}
	h.lists.SetMapIndex(h.key, list)
}

func (s historySlot) field(i int) reflect.Value {
	field := s.structure.Field(i)
	return reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem()
}

func (s historySlot) set(number int32, at time.Time, outdated bool) {
	s.field(0).SetInt(int64(number))
	s.field(1).Set(reflect.ValueOf(at))
	if s.structure.NumField() > 2 {
		s.field(2).SetBool(outdated)
	}
}

// get returns the slot after cutting its time to whole seconds: a retried write takes some milliseconds of virtual time.
func (s historySlot) get() (number int32, at time.Time, outdated bool) {
	at = s.field(1).Interface().(time.Time).UTC().Truncate(time.Second)
	s.field(1).Set(reflect.ValueOf(at))
	if s.structure.NumField() > 2 {
		outdated = s.field(2).Bool()
	}
	return int32(s.field(0).Int()), at, outdated
}
