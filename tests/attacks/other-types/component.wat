;; Offers `training`, but with functions of other types.
(component
  (core module $m (func (export "step")))
  (core instance $i (instantiate $m))
  (func $step (canon lift (core func $i "step")))
  (instance $training (export "step" (func $step)))
  (export "tunebox:method/training@0.2.0" (instance $training)))
