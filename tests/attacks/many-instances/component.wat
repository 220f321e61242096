;; Makes the same module over and over.
(component
  (core module $m (memory 1))
@300 (core instance (instantiate $m))
  (instance $training)
  (export "tunebox:method/training@0.2.0" (instance $training)))
