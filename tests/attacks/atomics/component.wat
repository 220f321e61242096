;; Uses instructions for memory that threads share.
(component
  (core module $m (memory 1) (func (drop (i32.atomic.load (i32.const 0)))))
  (core instance (instantiate $m))
  (instance $training)
  (export "tunebox:method/training@0.2.0" (instance $training)))
