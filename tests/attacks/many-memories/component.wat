;; Declares two memories in one module, to have twice the bytes.
(component
  (core module $m (memory 1) (memory 1))
  (core instance (instantiate $m))
  (instance $training)
  (export "tunebox:method/training@0.2.0" (instance $training)))
