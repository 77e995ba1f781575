package main

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
)

// staticInformer holds the objects of one type that a case lists. Event handlers run at once, in the caller, so that
// whoever builds a cache from events has seen everything when replace returns. It is never started.
type staticInformer struct {
	cache.SharedIndexInformer
	indexer  *orderedIndexer
	handlers []cache.ResourceEventHandler
}

func (s *staticInformer) GetIndexer() cache.Indexer { return s.indexer }

func (s *staticInformer) GetStore() cache.Store { return s.indexer }

// orderedIndexer lists objects in the order of the case, where upstream's lists them in the order of a Go map.
type orderedIndexer struct {
	cache.Indexer
	places map[string]int
}

func (o *orderedIndexer) Add(object any) error {
	key, err := cache.MetaNamespaceKeyFunc(object)
	if err != nil {
		return err
	}
	if _, known := o.places[key]; !known {
		o.places[key] = len(o.places)
	}
	return o.Indexer.Add(object)
}

func (o *orderedIndexer) List() []any { return o.ordered(o.Indexer.List()) }

func (o *orderedIndexer) Index(name string, object any) ([]any, error) {
	objects, err := o.Indexer.Index(name, object)
	return o.ordered(objects), err
}

func (o *orderedIndexer) ByIndex(name, value string) ([]any, error) {
	objects, err := o.Indexer.ByIndex(name, value)
	return o.ordered(objects), err
}

func (o *orderedIndexer) ordered(objects []any) []any {
	slices.SortFunc(objects, func(a, b any) int { return cmp.Compare(o.place(a), o.place(b)) })
	return objects
}

func (o *orderedIndexer) place(object any) int {
	key, _ := cache.MetaNamespaceKeyFunc(object)
	return o.places[key]
}

// registration is the handle of an event handler.
type registration struct {
	cache.ResourceEventHandlerRegistration
}

func (registration) HasSynced() bool { return true }

func (s *staticInformer) HasSynced() bool { return true }

func (s *staticInformer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	s.handlers = append(s.handlers, handler)
	return registration{}, nil
}

func (s *staticInformer) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, _ time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return s.AddEventHandler(handler)
}

func (s *staticInformer) AddEventHandlerWithOptions(handler cache.ResourceEventHandler, _ cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return s.AddEventHandler(handler)
}

// replace makes objects the only ones of the type.
func (s *staticInformer) replace(objects []runtime.Object) error {
	indexer := s.indexer
	for _, old := range indexer.List() {
		if err := indexer.Delete(old); err != nil {
			return err
		}
		for _, handler := range s.handlers {
			handler.OnDelete(old)
		}
	}
	clear(indexer.places)
	for _, object := range objects {
		if err := indexer.Add(object); err != nil {
			return err
		}
		for _, handler := range s.handlers {
			handler.OnAdd(object, false)
		}
	}
	return nil
}

// staticInformers is an informer factory whose informers hold what the case lists.
type staticInformers struct {
	informers.SharedInformerFactory
	client kubernetes.Interface
	byKind map[string]*staticInformer
}

// informed are the kinds of objects that Filter and Score plug-ins look up by informers.
var informed = map[string]func() runtime.Object{
	"Node":                  func() runtime.Object { return &v1.Node{} },
	"Pod":                   func() runtime.Object { return &v1.Pod{} },
	"Namespace":             func() runtime.Object { return &v1.Namespace{} },
	"Service":               func() runtime.Object { return &v1.Service{} },
	"PersistentVolume":      func() runtime.Object { return &v1.PersistentVolume{} },
	"PersistentVolumeClaim": func() runtime.Object { return &v1.PersistentVolumeClaim{} },
	"StorageClass":          func() runtime.Object { return &storagev1.StorageClass{} },
	"CSINode":               func() runtime.Object { return &storagev1.CSINode{} },
	"CSIDriver":             func() runtime.Object { return &storagev1.CSIDriver{} },
	"CSIStorageCapacity":    func() runtime.Object { return &storagev1.CSIStorageCapacity{} },
	"VolumeAttachment":      func() runtime.Object { return &storagev1.VolumeAttachment{} },
	"ResourceClaim":         func() runtime.Object { return &resourceapi.ResourceClaim{} },
	"ResourceSlice":         func() runtime.Object { return &resourceapi.ResourceSlice{} },
	"DeviceClass":           func() runtime.Object { return &resourceapi.DeviceClass{} },
}

func newStaticInformers() *staticInformers {
	client := fake.NewClientset()
	result := &staticInformers{
		SharedInformerFactory: informers.NewSharedInformerFactory(client, 0),
		client:                client,
		byKind:                map[string]*staticInformer{},
	}
	for kind, empty := range informed {
		object := empty()
		indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		informer := cache.NewSharedIndexInformer(&cache.ListWatch{}, object, 0, indexers)
		ordered := &orderedIndexer{Indexer: informer.GetIndexer(), places: map[string]int{}}
		static := &staticInformer{SharedIndexInformer: informer, indexer: ordered}
		result.byKind[kind] = static
		result.InformerFor(object, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer { return static })
	}
	return result
}

// replace makes the listed objects the only ones.
func (s *staticInformers) replace(objects map[string][]runtime.Object) error {
	for kind, informer := range s.byKind {
		if err := informer.replace(objects[kind]); err != nil {
			return err
		}
	}
	return nil
}
